"""The pipeline can be compiled, and has the expected nodes."""

from tfx.dsl.compiler import compiler

from pipeline import configs, definition

NODES = {
    "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "InputTuner", "MemoryProfiler",
    "OptimizedTrainer", "Evaluator", "PerfEvaluator", "Pusher",
}  # fmt: skip


def test_it_compiles() -> None:
    compiled = compiler.Compiler().compile(definition.create())
    assert compiled.pipeline_info.id == configs.PIPELINE_NAME
    assert {node.pipeline_node.node_info.id for node in compiled.nodes} >= NODES


def test_pusher_waits_for_both_blessings() -> None:
    pipeline = definition.create()
    pusher = next(node for node in pipeline.components if node.id == "Pusher")
    assert {"model_blessing", "infra_blessing"} <= set(pusher.inputs)
