"""The command itself, also as `python -m tfx_perf` (`__main__`), its `group`s, and wrong use."""

import subprocess
import sys

import pytest

import tfx_perf
from tfx_perf.cli import main


def test_version(run_command):
    done = run_command("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"tfx-perf {tfx_perf.__version__}")


def test_the_package_is_the_command():
    command = [sys.executable, "-m", "tfx_perf"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"tfx-perf {tfx_perf.__version__}")
    done = subprocess.run([*command, "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tfx-perf: ")


def test_without_a_subcommand_it_shows_the_help(call_command):
    done = call_command()
    assert done.returncode == 0
    for name in main.SUBCOMMANDS:
        assert name in done.stdout


def _commands() -> list[tuple[str, ...]]:
    """Returns what can be called: the subcommands, or where one is a group, its commands.

    Not `tfx`, whose output is TFX's own.
    """
    found = []
    for name in [name for name in main.SUBCOMMANDS if name != "tfx"]:
        inner = getattr(main.cli.get_command(None, name), "commands", None)
        found += [(name, each) for each in inner] if inner else [(name,)]
    return found


@pytest.mark.parametrize("names", _commands(), ids=" ".join)
def test_every_subcommand_has_help_and_json(call_command, names):
    done = call_command(*names, "--help")
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout


@pytest.mark.parametrize("names", [(), ("kubeflow",), ("template",)], ids=str)
def test_a_group_says_of_each_subcommand_what_it_does_in_a_whole_sentence(call_command, names):
    group = main.cli.get_command(None, *names) if names else main.cli
    commands = [group.get_command(None, each) for each in group.list_commands(None)]
    shown = "".join(call_command(*names, "--help").stdout.split())  # lines break at hyphens, too
    for command in commands:
        sentence = " ".join(command.help.split()).partition(". ")[0].removesuffix(".")
        assert f"{command.name}{sentence}.".replace(" ", "") in shown


def test_help_does_not_load_tensorflow_or_tfx():
    code = (
        "import sys\n"
        "from tfx_perf.cli import main\n"
        "for name in main.SUBCOMMANDS: main.cli.get_command(None, name)\n"
        "sys.exit(', '.join({'tensorflow', 'tfx', 'ml_metadata', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.stderr.strip() == ""


@pytest.mark.parametrize("group", [[], ["template"], ["kubeflow"], ["airflow"]])
def test_a_group_without_a_subcommand_shows_its_help(call_command, group):
    done = call_command(*group)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: tfx-perf" in done.stdout.splitlines()[0]
    assert "Commands:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (["nonsense"], "nonsense"),
        (["history"], "SOURCE"),
        (["history", "x.db", "--limit", "0"], "--limit"),
        (["history", "no-such-file.db"], "path=no-such-file.db"),
        (["history", ""], "path=''"),
        (["doctor", "--nonsense"], "--nonsense"),
        (["compare", "a"], "RUN'. See tfx-perf compare --help."),
        (["compare", "a", "b"], "run=a"),
        (["compare", "a", "b", "--source", "no-such-file.db"], "path=no-such-file.db"),
        (["bless", "a"], "--reason"),
        (["bless", "a", "--reason", "why"], "--source"),
        (["bless", "a", "--reason", " ", "--baseline-uri", "x"], "reason=''"),
        (["revoke", "a", "--reason", "why", "--baseline-uri", "nowhere"], "run=a"),
        (["revoke", "a", "--reason", "why", "--source", "no-such.db"], "path=no-such.db"),
    ],
)
@pytest.mark.parametrize("way", ["call_command", "run_command"])
@pytest.mark.slow_where("*run_command-arguments[!7]*", "*run_command-arguments1?*")
def test_a_user_error_is_one_line_and_exit_code_2(request, way, arguments, received):
    done = request.getfixturevalue(way)(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfx-perf: ")
    assert received in line
