"""The processes of a strategy whose coordinator hands out steps."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_Strategy = tf.distribute.ParameterServerStrategy


def cluster_of(strategy: tf.distribute.ParameterServerStrategy) -> dict[str, list[str]]:
    """Returns `host:port` of all processes, by the names of their jobs."""
    return strategy._cluster_resolver.cluster_spec().as_dict()


@contextlib.contextmanager
def made_once(strategy: tf.distribute.ParameterServerStrategy) -> Iterator[None]:
    """Gives code that makes such a strategy the one that is there, while the context lasts.

    A second one would connect again, and its scope could not be entered in the first one's.
    """

    def given(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return strategy

    def partitioned(
        self: Any, cluster_resolver: Any, variable_partitioner: Any = None
    ) -> None:
        self.extended._variable_partitioner = variable_partitioner

    made = _Strategy.__init__
    _Strategy.__new__, _Strategy.__init__ = given, partitioned
    try:
        yield
    finally:
        _Strategy.__init__ = made
        del _Strategy.__new__
