"""PerfEvaluator in real pipelines: with Evaluator's blessing, and with people's decisions."""

import itertools
import pathlib

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from perf_records import training_record
from test_perf_evaluator import CONFIG, FAST, SLOW, Gate, ledger_in
from tfx import v1 as tfx
from tfx.components.evaluator import constants
from tfx.types import standard_artifacts

from tfx_perf import errors
from tfx_perf.cli import main
from tfx_perf.components import PerfEvaluator, latest_ledger, types
from tfx_perf.gate import history
from tfx_perf.gate.mirror import Mirror
from tfx_perf.gate.record import GateRecord


@tfx.dsl.components.component
def QualityGate(  # noqa: N802 (a component)
    model: tfx.dsl.components.InputArtifact[standard_artifacts.Model],
    blessed: tfx.dsl.components.Parameter[int],
    blessing: tfx.dsl.components.OutputArtifact[standard_artifacts.ModelBlessing],
):
    """Blesses as Evaluator does, by decree."""
    key = constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY
    blessing.set_string_custom_property(key, model.uri)
    key = constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
    blessing.set_int_custom_property(key, model.id)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, blessed)


class Project:
    """A folder with ML Metadata, in which pipelines are run."""

    def __init__(self, root):
        self.root = root
        self.database = root / "metadata.sqlite"
        self.serving = root / "serving"
        self._count = 0

    @property
    def store(self):
        connection = mlmd.ConnectionConfig()
        connection.sqlite.filename_uri = str(self.database)
        return metadata_store.MetadataStore(connection)

    def run(self, components):
        tfx.orchestration.LocalDagRunner().run(
            tfx.dsl.Pipeline(
                pipeline_name="gated",
                pipeline_root=str(self.root / "artifacts"),
                components=components,
                metadata_connection_config=(
                    tfx.orchestration.metadata.sqlite_metadata_connection_config(
                        str(self.database)
                    )
                ),
            )
        )

    def judge(self, step_time_seconds, *, quality=None, ledger=None, **settings):
        """Runs a pipeline that judges and pushes a model whose steps took that long."""
        self._count += 1
        folder = self.root / f"trained{self._count}"
        (folder / "model" / "Format-Serving").mkdir(parents=True)
        (folder / "model" / "Format-Serving" / "saved_model.pb").write_bytes(b"a model")
        (folder / "metrics").mkdir()
        training_record(step_time_seconds).write(folder / "metrics" / "metrics.json")
        model, metrics = (
            tfx.dsl.Importer(source_uri=str(folder / name), artifact_type=kind).with_id(name)
            for name, kind in (("model", standard_artifacts.Model), ("metrics", types.PerfMetrics))
        )
        gate_settings = CONFIG.gate.model_copy(update=settings)
        gate = PerfEvaluator(
            model=model.outputs["result"],
            perf_metrics=metrics.outputs["result"],
            ledger=ledger.outputs["ledger"] if ledger else None,
            config=CONFIG.model_copy(update={"gate": gate_settings}),
        )
        blessings = {"infra_blessing": gate.outputs["blessing"]}
        nodes = [model, metrics, gate, *([ledger] if ledger else [])]
        if quality is not None:
            nodes.append(QualityGate(model=model.outputs["result"], blessed=quality))
            blessings["model_blessing"] = nodes[-1].outputs["blessing"]
        destination = tfx.proto.PushDestination.Filesystem(base_directory=str(self.serving))
        pusher = tfx.components.Pusher(
            model=model.outputs["result"],
            push_destination=tfx.proto.PushDestination(filesystem=destination),
            **blessings,
        )
        self.run([*nodes, pusher])

    def latest_blessed(self):
        """Returns the uris that TFX's resolver gives to a further run."""
        resolver = tfx.dsl.Resolver(
            strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
            model=tfx.dsl.Channel(type=standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest_blessed_model")
        self.run([resolver])
        store = self.store
        (execution,) = [
            item
            for kind in store.get_execution_types()
            if "resolver" in kind.name.lower()
            for item in store.get_executions_by_type(kind.name)
        ]
        ids = [event.artifact_id for event in store.get_events_by_execution_ids([execution.id])]
        return [item.uri for item in store.get_artifacts_by_id(ids) if item.type == "Model"]

    def flags(self, kind, key):
        artifacts = sorted(self.store.get_artifacts_by_type(kind), key=lambda item: item.id)
        return [item.custom_properties[key].int_value for item in artifacts]


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.mark.parametrize(("quality", "perf"), list(itertools.product([0, 1], repeat=2)))
def test_both_blessings_decide_on_pushing_and_only_evaluators_on_the_next_baseline(
    project, quality, perf
):
    uri = str(project.root / "baseline")
    Mirror(uri).add(ledger_in(Gate(project.root / "before").run(FAST)))
    project.judge(FAST if perf else SLOW, quality=quality, baseline_uri=uri)
    assert project.flags("InfraBlessing", "blessed") == [perf]
    assert project.flags("PushedModel", "pushed") == [int(quality and perf)]
    assert len(list(project.serving.glob("*/saved_model.pb"))) == int(quality and perf)
    # Evaluator compares with the last model of good quality, whatever its speed; ours never
    # makes a model one that Evaluator has refused.
    trained = str(project.root / "trained1" / "model")
    assert project.latest_blessed() == ([trained] if quality else [])


def test_what_people_decide_counts_in_the_next_run(project):
    for step_time_seconds in (FAST, SLOW):
        project.judge(step_time_seconds, ledger=latest_ledger())
    slow, fast = (run.run_id for run in history.read(str(project.database)))
    for kind, run_id in (("bless", slow), ("unbless", fast)):
        arguments = [kind, run_id, "--reason", "why", "--metadata", str(project.database)]
        main.cli.main(arguments, standalone_mode=False)

    project.judge(SLOW, ledger=latest_ledger())

    assert project.flags("InfraBlessing", "blessed") == [1, 0, 1]
    runs = history.read(str(project.database))
    path = pathlib.Path(runs[0].folders["PerfEvaluation"], "evaluation.json")
    assert [run.run_id for run in GateRecord.read(path).baseline_runs] == [slow]
    assert [run.blessed for run in runs] == [True, True, False]
    assert [run.note.split(" on ")[0].partition("@")[0].split(" by ")[0] for run in runs] == [
        "", "blessed", "unblessed",
    ]  # fmt: skip
    assert runs[0].environment == {"device_kind": "CPU", "global_batch_size": "64"}


def test_a_refusal_that_fails_the_pipeline_pushes_nothing_and_can_be_blessed(project, capsys):
    uri = str(project.root / "baseline")
    project.judge(FAST, baseline_uri=uri)
    with pytest.raises(errors.RefusalError) as caught:
        project.judge(SLOW, baseline_uri=uri, fail_pipeline=True)
    assert project.flags("PushedModel", "pushed") == [1]
    assert history.read(str(project.database))[0].state == "failed"
    assert len(Mirror(uri).read().entries) == 1
    report = pathlib.Path(str(caught.value).rpartition("Report: ")[2])
    assert report.is_file()
    arguments = ["bless", str(report.parent), "--reason", "why", "--baseline-uri", uri]
    main.cli.main(arguments, standalone_mode=False)
    assert len(Mirror(uri).read().entries) == 2
