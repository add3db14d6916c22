"""The scope of a strategy around a user's code, which gives way to one that the code makes."""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf import interception
from tfx_perf.distribute import made_strategy
from tfx_perf.interception import FitCall
from tfx_perf.tf_internals import clusters


class StrategyScope:
    """What is built while the context lasts is built under a strategy.

    TensorFlow refuses to enter the scope of one strategy in that of another. So this one is left
    for good when the code enters another one's.
    """

    def __init__(
        self, name: str | None, *, collective_timeout_seconds: float | None = None
    ) -> None:
        """Makes nothing yet.

        Args:
            name: see `made_strategy.made`; None: the code alone decides.
            collective_timeout_seconds: see `made_strategy.made`.
        """
        self._name, self._timeout_seconds = name, collective_timeout_seconds
        self._strategy: tf.distribute.Strategy | None = None
        self._is_open = False
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "StrategyScope":
        """Makes the strategy.

        Raises:
            UserError: this machine has not what it takes.
        """
        if self._name is not None:
            self._strategy = made_strategy.made(
                self._name, collective_timeout_seconds=self._timeout_seconds
            )
            self._open()
            if isinstance(self._strategy, tf.distribute.ParameterServerStrategy):
                self._undo.enter_context(clusters.made_once(self._strategy))
            self._undo.enter_context(
                interception.replacing(tf.distribute.Strategy, "scope", self._giving_way)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Leaves the scope, if it was not left."""
        self._undo.close()
        if self._is_open:
            self._leave()

    def outside(self, handler: Callable[[FitCall], Any]) -> Callable[[FitCall], Any]:
        """Returns a handler that runs outside of the scope, as `fit` does behind a `with` block.

        Args:
            handler: of calls of `fit`, which are made in the scope.
        """

        def handle(call: FitCall) -> Any:
            if not self._is_open:
                return handler(call)
            self._leave()
            try:
                return handler(call)
            finally:
                self._open()

        return handle

    def _giving_way(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def scope(strategy: tf.distribute.Strategy) -> Any:
            if self._is_open and strategy is not self._strategy:
                self._leave()
            return own(strategy)

        return scope

    def _open(self) -> None:
        if self._strategy is not tf.distribute.get_strategy():  # which needs no scope
            tf.distribute.experimental_set_strategy(self._strategy)
        self._is_open = True

    def _leave(self) -> None:
        tf.distribute.experimental_set_strategy(None)
        self._is_open = False
