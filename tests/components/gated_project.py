"""Small real pipelines around PerfEvaluator, and its artifacts, for tests."""

import pathlib

from ml_metadata.proto import metadata_store_pb2 as mlmd
from perf_records import training_record
from tfx import v1 as tfx
from tfx.components.evaluator import constants
from tfx.types import standard_artifacts

from tests.local_pipeline import LocalPipeline
from tfx_perf.components import PerfEvaluator, types
from tfx_perf.config import PerfConfig

SETTINGS = PerfConfig.from_dict({"gate": {"rules": {"step_time_seconds": {"tolerance": 0.25}}}})


@tfx.dsl.components.component
def QualityGate(  # noqa: N802 (a component)
    model: tfx.dsl.components.InputArtifact[standard_artifacts.Model],
    blessed: tfx.dsl.components.Parameter[int],
    blessing: tfx.dsl.components.OutputArtifact[standard_artifacts.ModelBlessing],
):
    """Blesses the model if its parameter says so, in the format of Evaluator."""
    key = constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY
    blessing.set_string_custom_property(key, model.uri)
    key = constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
    blessing.set_int_custom_property(key, model.id)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, blessed)


def artifact_in(folder, kind):
    """Creates a folder and returns an artifact of a type in it."""
    item = kind()
    item.uri = str(folder)
    pathlib.Path(folder).mkdir(parents=True)
    return item


def gate_outputs(folder):
    """Returns the output artifacts of PerfEvaluator's executor, in a folder."""
    kinds = {
        "blessing": standard_artifacts.InfraBlessing,
        "evaluation": types.PerfEvaluation,
        "updated_ledger": types.PerfLedger,
    }
    return {key: [artifact_in(folder / key, kind)] for key, kind in kinds.items()}


class Project(LocalPipeline):
    """A folder in which models are judged; `database` is how the command line names ML Metadata."""

    def __init__(self, root, *, connection=None, database=None):
        super().__init__(root, connection=connection)
        self.root = root
        self.database = database or str(root / "metadata.sqlite")
        self.serving = root / "serving"
        self._count = 0

    def train(self, step_time_seconds):
        """Writes the artifacts of a training whose steps took that long."""
        self._count += 1
        folder = self.root / f"trained{self._count}"
        (folder / "model" / "Format-Serving").mkdir(parents=True)
        (folder / "model" / "Format-Serving" / "saved_model.pb").write_bytes(b"a model")
        (folder / "metrics").mkdir()
        training_record(step_time_seconds).write(folder / "metrics" / "metrics.json")

    def judge(self, step_time_seconds, *, quality=None, ledger=None, **settings):
        """Runs a pipeline that judges and pushes a model whose steps took that long."""
        self.train(step_time_seconds)
        self.judge_again(quality=quality, ledger=lambda metrics: ledger, **settings)

    def judge_again(self, *, quality=None, ledger, enable_cache=False, **settings):
        """Runs a pipeline that judges and pushes the last model, whose training is cached.

        Args:
            quality: what `QualityGate` decrees; None leaves it out.
            ledger: makes the resolver, from the channel of the figures.
            enable_cache: of the pipeline.
            **settings: of the gate.
        """
        folder = self.root / f"trained{self._count}"
        model, metrics = (
            tfx.dsl.Importer(source_uri=str(folder / name), artifact_type=kind).with_id(name)
            for name, kind in (("model", standard_artifacts.Model), ("metrics", types.PerfMetrics))
        )
        ledger = ledger(metrics.outputs["result"])
        gate_settings = SETTINGS.gate.model_copy(update=settings)
        gate = PerfEvaluator(
            model=model.outputs["result"],
            perf_metrics=metrics.outputs["result"],
            ledger=ledger.outputs["ledger"] if ledger else None,
            config=SETTINGS.model_copy(update={"gate": gate_settings}),
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
        self.run([*nodes, pusher], enable_cache=enable_cache)

    def states(self, component):
        """Returns how the executions of a component ended, in order."""
        kind = f"{component.__module__}.{component.__name__}"
        found = sorted(self.store.get_executions_by_type(kind), key=lambda item: item.id)
        return [mlmd.Execution.State.Name(item.last_known_state) for item in found]

    def latest_blessed(self):
        """Returns the uris that TFX's resolver gives to a further run."""
        resolver = tfx.dsl.Resolver(
            strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
            model=tfx.dsl.Channel(type=standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest_blessed_model")
        self.run([resolver], enable_cache=False)
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
