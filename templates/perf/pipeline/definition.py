"""This project's pipeline, which every runner runs."""

import tensorflow_model_analysis as tfma
from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx

from tfx_perf.config import PerfConfig

from models import features
from pipeline import configs
from pipeline.training_pipeline import TrainingCode, create_pipeline


def create(
    *,
    pipeline_name: str = configs.PIPELINE_NAME,
    data_path: str = configs.DATA_PATH,
    pipeline_root: str = str(configs.OUTPUT / "artifacts"),
    serving_model_dir: str = str(configs.OUTPUT / "serving_model"),
    metadata_connection_config: metadata_store_pb2.ConnectionConfig | None = None,
    baseline_uri: str | None = None,
    run_label: str | None = None,
) -> tfx.dsl.Pipeline:
    """Returns the pipeline.

    Args:
        pipeline_name: runs with the same name share a baseline.
        data_path: folder with the data, as the components see it.
        pipeline_root: folder for the artifacts, also in an object store.
        serving_model_dir: where blessed models are pushed to.
        metadata_connection_config: of ML Metadata; None where the orchestrator has its own.
        baseline_uri: where the gate keeps its ledger of blessed runs, in addition to ML Metadata.
        run_label: a new label trains again even if nothing has changed.
    """
    settings = PerfConfig.from_yaml(configs.SETTINGS)
    if baseline_uri:
        gate = settings.gate.model_copy(update={"baseline_uri": baseline_uri})
        settings = settings.model_copy(update={"gate": gate})
    return create_pipeline(
        pipeline_name=pipeline_name,
        pipeline_root=pipeline_root,
        data_path=data_path,
        data_format=configs.DATA_FORMAT,
        code=TrainingCode(
            preprocessing_fn="models.preprocessing.preprocessing_fn",
            run_fn="models.model.run_fn",
            train_steps=configs.TRAIN_STEPS,
            eval_steps=configs.EVAL_STEPS,
        ),
        eval_config=eval_config(),
        serving_model_dir=serving_model_dir,
        metadata_connection_config=metadata_connection_config,
        config=settings,
        run_label=run_label,
        beam_pipeline_args=configs.BEAM_PIPELINE_ARGS,
    )


def eval_config() -> tfma.EvalConfig:
    """Returns Evaluator's limits: minimum accuracy and maximum drop from the last blessed model."""
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": configs.MIN_ACCURACY}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -0.02}
        ),
    )
    accuracy = tfma.MetricConfig(class_name="BinaryAccuracy", threshold=threshold)
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(signature_name="serving_default", label_key=features.LABEL)],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[tfma.MetricsSpec(metrics=[accuracy])],
    )
