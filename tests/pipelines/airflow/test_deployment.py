"""What deploying writes, what it refuses before it has written anything, and where."""

import json
import pathlib
import re
import threading

import light_components as light
import pytest
from tfx import v1 as tfx

from tfx_perf.core import errors
from tfx_perf.pipelines.airflow import deploy


@pytest.fixture
def dags(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def _listing(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_with_three_files_that_is_updated_in_place(tmp_path, dags):
    folder = deploy(light.everything(tmp_path), dags_folder=dags)
    assert folder == dags / "light"
    expected = ["light", "light/dag.py", "light/pipeline.json", "light/topology.json"]
    assert _listing(dags) == expected
    deploy(light.pipeline(tmp_path, [light.Decide(value=1)]), dags_folder=dags)
    assert _listing(dags) == expected
    topology = json.loads((folder / "topology.json").read_text())
    assert [node["id"] for node in topology["nodes"]] == ["Decide"]


def test_a_reader_never_sees_half_a_file(tmp_path, dags):
    pipelines = [light.everything(tmp_path), light.pipeline(tmp_path, [light.Decide(value=1)])]
    folder = deploy(pipelines[0], dags_folder=dags)
    sizes, done = set(), threading.Event()

    def read() -> None:
        while not done.is_set():
            sizes.add(len(json.loads((folder / "topology.json").read_text())["nodes"]))

    reader = threading.Thread(target=read)
    reader.start()
    for index in range(20):
        deploy(pipelines[index % 2], dags_folder=dags)
    done.set()
    reader.join()
    assert sizes == {1, 5}


def _with_module_file(folder: pathlib.Path, *, text: str) -> tfx.dsl.Pipeline:
    module = folder / "user_code.py"
    module.write_text(text)
    examples = tfx.components.CsvExampleGen(input_base=str(folder))
    steps = {"train_args": tfx.proto.TrainArgs(num_steps=1), "eval_args": tfx.proto.EvalArgs()}
    trainer = tfx.components.Trainer(
        module_file=str(module), examples=examples.outputs["examples"], **steps
    )
    return light.pipeline(folder, [examples, trainer])


def test_an_edit_of_a_module_file_is_another_parameter_of_its_node(tmp_path, dags, capfd):
    def packed(text):
        folder = deploy(_with_module_file(tmp_path, text=text), dags_folder=dags)
        return re.findall(r"user_code@[^\"]+\.whl", (folder / "pipeline.json").read_text())

    first, again, edited = packed("A = 1\n"), packed("A = 1\n"), packed("A = 2\n")
    assert first
    assert first == again != edited
    assert capfd.readouterr().out == ""
    pipeline = _with_module_file(tmp_path, text="A = 3\n")
    (tmp_path / "user_code.py").unlink()
    with pytest.raises(errors.UserError, match=r"can pack.*user_code\.py"):
        deploy(pipeline, dags_folder=dags)


def _without_metadata(folder: pathlib.Path) -> tfx.dsl.Pipeline:
    pipeline = light.pipeline(folder, [light.Decide(value=1)])
    pipeline.metadata_connection_config = None
    return pipeline


def _parameter_without_default(folder: pathlib.Path) -> tfx.dsl.Pipeline:
    value = tfx.dsl.experimental.RuntimeParameter(name="value", ptype=int)
    return light.pipeline(folder, [light.Decide(value=value)])


@pytest.mark.parametrize(
    ("make", "settings", "received"),
    [
        (lambda f: light.pipeline(f, [], name="my pipeline"), {}, "pipeline='my pipeline'"),
        (lambda f: light.pipeline(f, [], name="../other"), {}, "pipeline='../other'"),
        (_without_metadata, {}, "metadata_connection_config=None"),
        (_parameter_without_default, {"schedule": "@daily"}, "value=None"),
        (light.everything, {"nodes": {"Trainer": {}}}, "nodes.Trainer"),
        (light.everything, {"parameters": {"ration": 1}}, "parameter=ration"),
        (light.everything, {"parameters": {"ratio": "much"}}, "ratio=much"),
        (light.everything, {"python": "/no/python"}, "python=/no/python"),
        (light.everything, {"python": "python3"}, "python=python3"),
        (light.everything, {"schedul": "@daily"}, "schedul='@daily'"),
        (light.everything, {"schedule": "daily"}, "schedule"),
        (light.everything, {"default_args": {"retry": 1}}, "default_args.retry=1"),
        (light.everything, {"nodes": {"Gate": {"pol": "x"}}}, "nodes.Gate.pol='x'"),
        (light.everything, {"default_args": {"retries": -1}}, "default_args.retries=-1"),
        (light.everything, {"container": {"operator": "podman", "image": "x"}}, "'podman'"),
    ],
)
def test_an_error_is_one_line_and_nothing_is_written(tmp_path, dags, make, settings, received):
    with pytest.raises(errors.UserError) as caught:
        deploy(make(tmp_path), dags_folder=dags, settings=settings)
    assert received in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _listing(dags) == []


@pytest.mark.parametrize("name", ["light/other.py", "light.py", "light/topology.json"])
def test_a_name_that_something_else_has_is_refused(tmp_path, dags, name):
    path = dags / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises(errors.UserError, match="nothing else has"):
        deploy(light.everything(tmp_path), dags_folder=dags)
    assert path.read_text() == "{}"
    assert len([each for each in dags.rglob("*") if each.is_file()]) == 1


def test_a_folder_that_cannot_be_written_or_is_missing_leaves_nothing(tmp_path, dags, monkeypatch):
    def fail(self: pathlib.Path, target: pathlib.Path) -> None:
        raise OSError("disk full")

    with pytest.raises(errors.UserError, match="dags_folder="):
        deploy(light.everything(tmp_path), dags_folder=tmp_path / "dgas")
    monkeypatch.setattr(pathlib.Path, "replace", fail)
    with pytest.raises(errors.UserError, match="disk full"):
        deploy(light.everything(tmp_path), dags_folder=dags)
    assert _listing(dags) == []


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An Airflow home that is empty yet."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    for name in ("AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        monkeypatch.delenv(name, raising=False)
    return home


def test_a_home_without_a_database_is_refused(tmp_path, home):
    with pytest.raises(errors.UserError, match="airflow db migrate") as caught:
        deploy(light.everything(tmp_path))
    assert f"AIRFLOW_HOME={home}" in str(caught.value)
    assert _listing(home) == []


@pytest.mark.parametrize("settings", ["", "[core]\ndags_folder = {home}/dags\n"])
def test_the_dags_folder_of_a_home_that_is_new_or_names_it(tmp_path, home, settings):
    (home / "airflow.db").touch()
    (home / "airflow.cfg").write_text(settings.format(home=home))
    assert deploy(light.everything(tmp_path)) == home / "dags" / "light"


def test_a_database_elsewhere_without_a_home_here_is_one_error(tmp_path, home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://h/airflow")
    home.rmdir()
    with pytest.raises(errors.UserError, match="Expected an existing folder"):
        deploy(light.everything(tmp_path))


def test_the_options_of_a_database_are_not_its_name(tmp_path, home, monkeypatch):
    database = home / "other.db"
    database.touch()
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{database}?timeout=30")
    assert deploy(light.everything(tmp_path)) == home / "dags" / "light"


def test_the_dags_folder_that_the_settings_name(tmp_path, home, dags, monkeypatch):
    (home / "airflow.cfg").write_text(
        f"[core]\ndags_folder = {dags}\n[database]\nsql_alchemy_conn = postgresql://h/%(x)s\n"
    )
    assert deploy(light.everything(tmp_path)) == dags / "light"
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(other))
    assert deploy(light.everything(tmp_path)) == other / "light"
