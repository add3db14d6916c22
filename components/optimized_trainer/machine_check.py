"""Whether this machine has what the settings take, before a pipeline has done anything."""

from collections.abc import Iterable

from tfx.dsl.components.base import base_node

from tfx_perf.components.optimized_trainer.component import OptimizedTrainer
from tfx_perf.config import PerfConfig
from tfx_perf.hardware import host
from tfx_perf.training import collectives


def check(nodes: Iterable[base_node.BaseNode]) -> None:
    """Checks the nodes that will train on this machine.

    What is only known when TensorFlow has looked at its devices is found then.

    Args:
        nodes: of a pipeline.

    Raises:
        UserError: a setting takes what is not here.
    """
    for node in nodes:
        if not isinstance(node, OptimizedTrainer):
            continue
        settings = PerfConfig.from_json(node.exec_properties["config"]).distribution
        if settings.workers:
            collectives.check(settings.collective, has_gpus=host.may_have_accelerators())
