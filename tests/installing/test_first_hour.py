"""The quickstart, done in an environment made by uv and in one made by pip."""

import pathlib
import re
import subprocess
import sys

import pages
import pytest
import wheels

from tests.pipelines.airflow import airflow_environment
from tfx_perf.hardware import versions
from tfx_perf.mlmd import runs as recorded_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

_PAGE = wheels.ROOT / "docs" / "quickstart.md"
_ELSEWHERE = ("AIRFLOW", "PYTEST", "TFX_PERF", "UV_")
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def _made(tool: str, folder: pathlib.Path, *, uv: str) -> pathlib.Path:
    """Returns the programs of a new environment, which has pip, since TFX calls it."""
    if tool == "uv":
        command = [uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder)]
    else:
        command = [sys.executable, "-m", "venv", str(folder)]
    subprocess.run(command, check=True)
    return folder / "bin"


class Reader(pages.Reader):
    """Who does what the page says.

    Args:
        tool: `uv` or `pip`.
        wheel: what is installed.
        uv: its path.
        folder: where the shell begins, and the environment is.
    """

    def __init__(self, tool: str, wheel: pathlib.Path, *, uv: str, folder: pathlib.Path) -> None:
        programs = _made(tool, folder / "environment", uv=uv)
        super().__init__(folder, wheels.environment(programs, *_ELSEWHERE))
        self._tool, self._wheel, self._uv = tool, wheel, uv

    def install(self, extra: str = "[tfx]") -> None:
        """Installs the wheel with the tool's command of the page."""
        install = getattr(versions.install_commands(_PYTHON), self._tool)
        assert install in _PAGE.read_text()
        install = install.replace("'.[tfx]'", f"'tfx-perf{extra} @ {self._wheel.as_uri()}'")
        for name in ("requirements.lock", "constraints.txt"):
            install = install.replace(name, str(wheels.ROOT / name))
        self.type(install.replace("uv pip", f"{self._uv} pip") if self._tool == "uv" else install)


@pytest.fixture(scope="module", params=["uv", "pip"])
def reader(request, uv, wheel, tmp_path_factory):
    """Who has installed the wheel as the page says, with the tool of that name."""
    folder = tmp_path_factory.mktemp(f"you-{request.param}")
    user = Reader(request.param, wheel, uv=uv, folder=folder)
    user.install()
    return user


@pytest.fixture(scope="module")
def airflow() -> str:
    """The folder of the programs of an Airflow, without TFX."""
    is_new = sys.version_info >= (3, 13)  # for which there is no Airflow 2
    kind = airflow_environment.AIRFLOW_3 if is_new else airflow_environment.AIRFLOW_2
    return str(airflow_environment.environment(kind))


def _runs(project: pathlib.Path) -> list[recorded_runs.RecordedRun]:
    (database,) = [*project.rglob("metadata.db"), *project.rglob("metadata.sqlite")]
    return recorded_runs.read_runs(database)[::-1]


def _with_names_of_runs(commands: str, user: pages.Reader) -> str:
    """Puts the names of the reader's own runs in the place of the page's."""
    numbers = re.findall(r"RUN_(\d)", commands)
    for number in numbers:
        name = _runs(user.folder)[int(number) - 1].run_id
        commands = commands.replace(f"RUN_{number}", name)
    return commands


def test_the_page_shows_the_real_output(reader, airflow, capsys):
    differences, shown = [], ""
    for block in list(pages.blocks(_PAGE))[1:]:  # the first one has installed it
        if "pip install" in block.body:
            reader.install("[kfp]")
        elif block.language == "sh":
            if "airflow" in block.body:
                reader.type(f"export PATH=$PATH:{airflow} AIRFLOW__CORE__LOAD_EXAMPLES=False")
            shown = reader.type(_with_names_of_runs(block.body, reader))
            with capsys.disabled():
                print(f"\n--- line {block.line}\n{block.body}---\n{shown}", flush=True)
        elif block.language == "text":
            if found := pages.difference(block.body, shown):
                differences.append(f"quickstart.md:{block.line}\n{found}\n{shown}")
        elif block.language == "diff":
            reader.write("slow.patch", block.body)
        else:
            reader.write(block.body.splitlines()[0].removeprefix("# "), block.body)
    assert not differences, "\n\n".join(differences)
    taxi = _runs(reader.folder)
    assert [run.blessed for run in taxi] == [True, True, False, True]
    assert taxi[2].pushed is False  # of the others Evaluator decides, by the luck of the weights
