"""A window of daily spans moves on by a day: plans hold, though all the data are others."""

import pathlib
import random

import pytest
from tfx import v1 as tfx
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import standard_artifacts

from tests.local_pipeline import LocalPipeline
from tfx_perf.components import InputTuner, OptimizedTrainer, latest_metrics, latest_plans, types

pytestmark = pytest.mark.slow

_WINDOW = 3  # days

_MODULE = """
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras as keras
from tfx_bsl.public import tfxio

def preprocessing_fn(inputs):
    return {
        "amount_xf": tft.scale_to_z_score(tf.cast(inputs["amount"], tf.float32)),
        "city_xf": tft.compute_and_apply_vocabulary(
            inputs["city"], num_oov_buckets=1, vocab_filename="city"),
        "label_xf": inputs["label"],
    }

def run_fn(fn_args):
    output = tft.TFTransformOutput(fn_args.transform_output)
    def read(files):
        options = tfxio.TensorFlowDatasetOptions(batch_size=32, label_key="label_xf")
        schema = output.transformed_metadata.schema
        return fn_args.data_accessor.tf_dataset_factory(files, options, schema).repeat()
    amount = keras.Input((1,), name="amount_xf")
    city = keras.Input((1,), name="city_xf", dtype=tf.int64)
    size = output.vocabulary_size_by_name("city") + 1
    vector = keras.layers.Flatten()(keras.layers.Embedding(size, 4)(city))
    hidden = keras.layers.Dense(16)(keras.layers.concatenate([amount, vector]))
    model = keras.Model([amount, city], keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy")
    model.fit(read(fn_args.train_files), steps_per_epoch=fn_args.train_steps, verbose=0)
    model.save(fn_args.serving_model_dir)
"""


def _write_day(folder: pathlib.Path, day: int) -> None:
    """Writes a span; each day has cities that no other one has, and later ones have more."""
    draw = random.Random(day)
    cities = [*"abcdefghij", *(f"new{day}.{number}" for number in range(day))]
    target = folder / f"span-{day:02}"
    target.mkdir(parents=True)
    rows = [f"{draw.random():.6f},{draw.choice(cities)},{draw.randint(0, 1)}" for _ in range(1000)]
    (target / "data.csv").write_text("\n".join(["amount,city,label", *rows]) + "\n")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the pipeline for a day, without training before the window is full.

    Returns the newest input plan and the newest figures.
    """
    (tmp_path / "rolling_module.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = LocalPipeline(tmp_path)
    splits = [
        example_gen_pb2.Input.Split(name=name, pattern="span-{SPAN:2}/*.csv")
        for name in ("train", "eval")
    ]

    def once(day):
        _write_day(tmp_path / "days", day)
        ingested = tfx.components.CsvExampleGen(
            input_base=str(tmp_path / "days"), input_config=example_gen_pb2.Input(splits=splits)
        )
        if day < _WINDOW:
            return pipeline.run([ingested], enable_cache=False)
        window = range_config_pb2.RangeConfig(
            rolling_range=range_config_pb2.RollingRange(num_spans=_WINDOW)
        )
        examples = tfx.dsl.Resolver(
            strategy_class=tfx.dsl.experimental.SpanRangeStrategy,
            config={"range_config": window},
            examples=tfx.dsl.Channel(
                type=standard_artifacts.Examples, producer_component_id=ingested.id
            ),
        ).with_id("window")
        examples.add_upstream_node(ingested)
        statistics = tfx.components.StatisticsGen(examples=ingested.outputs["examples"])
        schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
        transform = tfx.components.Transform(
            examples=examples.outputs["examples"],
            schema=schema.outputs["schema"],
            preprocessing_fn="rolling_module.preprocessing_fn",
        )
        transformed = transform.outputs["transformed_examples"]
        training = {
            "examples": transformed,
            "transform_graph": transform.outputs["transform_graph"],
            "run_fn": "rolling_module.run_fn",
            "train_args": tfx.proto.TrainArgs(num_steps=120),
            "eval_args": tfx.proto.EvalArgs(num_steps=2),
            "config": {
                "input": {"tuning_seconds": 20},
                "training": {"tuning_seconds": 30},
                "compilation": {"enabled": False},
                "schedule": {"expected_runs": 10**6},
            },
        }
        plans, metrics = latest_plans(transformed), latest_metrics(transformed)
        tuner = InputTuner(**training, previous_plans=plans.outputs["previous_plans"])
        trainer = OptimizedTrainer(
            **training,
            input_plan=tuner.outputs["input_plan"],
            previous_metrics=metrics.outputs["previous_metrics"],
        )
        pipeline.run(
            [ingested, examples, statistics, schema, transform, plans, tuner, metrics, trainer],
            enable_cache=False,
        )
        return [
            max(pipeline.store.get_artifacts_by_type(kind.TYPE_NAME), key=lambda item: item.id)
            for kind in (types.InputPlan, types.PerfMetrics)
        ]

    return once


def test_plans_hold_from_day_to_day(run):
    for day in range(1, _WINDOW):
        run(day)
    measured, reused = run(_WINDOW), run(_WINDOW + 1)
    for before, after in zip(measured, reused, strict=True):
        assert before.id != after.id
        assert before.custom_properties["reused_from"].string_value == ""
        assert after.custom_properties["reused_from"].string_value == before.uri
    plan, again = (item.custom_properties["plan"].string_value for item in (measured[1], reused[1]))
    assert plan == again
