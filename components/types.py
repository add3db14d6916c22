"""The artifact types of tfx-perf; containers find the classes as `tfx_perf.<Class>`.

They have no PROPERTIES, which cannot compile for Kubeflow: scalars are custom properties.
"""

from tfx.types import artifact, system_artifacts

Artifacts = dict[str, list[artifact.Artifact]]
"""The inputs or the outputs of a node, by their keys."""


class InputPlan(artifact.Artifact):
    """InputTuner's choice: `plan.json` and `report.html`."""

    TYPE_NAME = "tfx_perf.InputPlan"


class MemoryProfile(artifact.Artifact):
    """MemoryProfiler's figures: `profile.json` and `report.html`."""

    TYPE_NAME = "tfx_perf.MemoryProfile"
    TYPE_ANNOTATION = system_artifacts.Metrics


class PerfMetrics(artifact.Artifact):
    """OptimizedTrainer's figures: `metrics.json` and `report.html`."""

    TYPE_NAME = "tfx_perf.PerfMetrics"
    TYPE_ANNOTATION = system_artifacts.Metrics


class PerfLedger(artifact.Artifact):
    """The last blessed runs: `ledger.json`. A refused run passes it on unchanged."""

    TYPE_NAME = "tfx_perf.PerfLedger"


class PerfEvaluation(artifact.Artifact):
    """PerfEvaluator's verdict in full: `evaluation.json` and `report.html`."""

    TYPE_NAME = "tfx_perf.PerfEvaluation"
    TYPE_ANNOTATION = system_artifacts.Metrics
