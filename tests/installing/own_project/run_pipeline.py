"""A pipeline in one file."""

import os

from tfx.components import CsvExampleGen, Pusher, SchemaGen, StatisticsGen, Trainer
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import pusher_pb2, trainer_pb2


def make():
    """Returns the pipeline."""
    gen = CsvExampleGen(input_base="data")
    stats = StatisticsGen(examples=gen.outputs["examples"])
    schema = SchemaGen(statistics=stats.outputs["statistics"])
    trainer = Trainer(
        run_fn="training_code.run_fn",
        examples=gen.outputs["examples"],
        schema=schema.outputs["schema"],
        train_args=trainer_pb2.TrainArgs(num_steps=2000),
        eval_args=trainer_pb2.EvalArgs(num_steps=5),
    )
    pusher = Pusher(
        model=trainer.outputs["model"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="serving")
        ),
    )
    os.makedirs("metadata", exist_ok=True)
    return pipeline.Pipeline(
        pipeline_name="points",
        pipeline_root="root",
        components=[gen, stats, schema, trainer, pusher],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(
            "metadata/metadata.sqlite"
        ),
    )


if __name__ == "__main__":
    LocalDagRunner().run(make())
