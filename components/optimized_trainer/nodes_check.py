"""Whether this machine has what a pipeline's settings take, before any node has run."""

from collections.abc import Iterable

from tfx.dsl.components.base import base_node

from tfx_perf.components.optimized_trainer.component import OptimizedTrainer
from tfx_perf.config import PerfConfig
from tfx_perf.training import machine_check


def check(nodes: Iterable[base_node.BaseNode]) -> None:
    """Checks the nodes that will train on this machine.

    Args:
        nodes: of a pipeline.

    Raises:
        UserError: a setting takes what is not here.
    """
    for node in nodes:
        if isinstance(node, OptimizedTrainer):
            machine_check.check(PerfConfig.from_json(node.exec_properties["config"]).distribution)
