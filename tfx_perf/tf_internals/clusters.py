"""The processes of a `ParameterServerStrategy`."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception

_Strategy = tf.distribute.ParameterServerStrategy


def cluster_of(strategy: tf.distribute.ParameterServerStrategy) -> dict[str, list[str]]:
    """Returns `host:port` of all processes, by the names of their jobs."""
    return strategy._cluster_resolver.cluster_spec().as_dict()


@contextlib.contextmanager
def made_once(strategy: tf.distribute.ParameterServerStrategy) -> Iterator[None]:
    """Gives code in the context the existing strategy, since a second one could not be entered."""

    def given(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return strategy

    def partitioned(self: Any, cluster_resolver: Any, variable_partitioner: Any = None) -> None:
        self.extended._variable_partitioner = variable_partitioner

    with (
        interception.replacing(_Strategy, "__new__", lambda original: given),
        interception.replacing(_Strategy, "__init__", lambda original: partitioned),
    ):
        yield
