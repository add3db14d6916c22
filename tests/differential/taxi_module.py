"""The taxi template's training: its data made once, its `run_fn` for either Keras line."""

import importlib.util
import pathlib
import sys
import types
from typing import Any

_ROWS = 3000  # of 15,002
BATCH_SIZE = 40


def prepare(folder: pathlib.Path) -> None:
    """Writes the template's project and runs its pipeline up to Transform, unless it is there."""
    from tfx import v1 as tfx

    from tfx_perf.pipelines import taxi

    if (folder / "ready").exists():
        return
    taxi.write_project(folder / "project", batch_size=BATCH_SIZE)
    (path,) = (folder / "project" / "data").rglob("*.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 1 + _ROWS]))
    sys.path.insert(0, str(folder / "project"))
    examples = tfx.components.CsvExampleGen(input_base=str(folder / "project" / "data"))
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="models.preprocessing.preprocessing_fn",
    )
    tfx.orchestration.LocalDagRunner().run(
        tfx.dsl.Pipeline(
            pipeline_name="taxi",
            pipeline_root=str(folder / "artifacts"),
            metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
                str(folder / "metadata.sqlite")
            ),
            components=[examples, statistics, schema, transform],
        )
    )
    (folder / "ready").touch()


def run_fn(package: str, folder: pathlib.Path) -> Any:
    """Returns the template's `run_fn`; for Keras 3 its text with `keras` for `tf.keras`.

    Args:
        package: the Keras line.
        folder: see `prepare`.
    """
    project = folder / "project"
    sys.path.insert(0, str(project))
    path = project / "models" / "keras_model" / "model.py"
    if package == "tf_keras":
        spec = importlib.util.spec_from_file_location("taxi_model", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.run_fn
    text = path.read_text().replace("tf.keras.", "keras.")
    # Keras 3 wants it adapted, which the template leaves out.
    text = text.replace("keras.layers.Normalization()(layer)", "keras.layers.Identity()(layer)")
    module = types.ModuleType("taxi_model")
    exec(compile("import keras\n" + text, str(path), "exec"), module.__dict__)
    return module.run_fn


def fn_args(folder: pathlib.Path, *, steps: int, run: pathlib.Path) -> Any:
    """Returns what TFX's Trainer gives to `run_fn`.

    Args:
        folder: see `prepare`.
        steps: of training.
        run: for the outputs.
    """
    from tfx.components.trainer import fn_args_utils
    from tfx.components.util import tfxio_utils
    from tfx.types import artifact_utils, standard_artifacts

    (uri,) = (folder / "artifacts" / "Transform" / "transformed_examples").iterdir()
    (graph,) = (folder / "artifacts" / "Transform" / "transform_graph").iterdir()
    examples = standard_artifacts.Examples()
    examples.uri = str(uri)
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    accessor = fn_args_utils.DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact([examples], ["test"]),
        record_batch_factory=None,
        data_view_decode_fn=None,
    )
    return fn_args_utils.FnArgs(
        train_files=[f"{uri}/Split-train/*"],
        eval_files=[f"{uri}/Split-eval/*"],
        transform_output=str(graph),
        data_accessor=accessor,
        train_steps=steps,
        eval_steps=5,
        model_run_dir=str(run / "logs"),
        serving_model_dir=str(run / "model"),
    )
