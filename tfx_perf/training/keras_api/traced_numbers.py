"""Numbers that Keras' objects change while they are traced, and that go into the graphs."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf


class TracedNumbers:
    """The numbers in the attributes of a model's optimizers and random layers.

    tf_keras' Nadam counts how often it is traced; of a layer that was given a seed, each random
    operation that is traced gets the next one.
    """

    def __init__(self, holders: Callable[[], Iterable[Any]]) -> None:
        """Reads the numbers.

        Args:
            holders: returns the objects that have them, of which tracing may make more.
        """
        self._holders = holders
        self._attributes: list[tuple[Any, dict[str, int | float]]] = []
        self.read()

    def read(self) -> None:
        """Reads the numbers anew."""
        self._attributes = [
            (holder, {name: each for name, each in vars(holder).items() if _is_number(each)})
            for holder in self._holders()
        ]

    def read_before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that has the numbers read anew whenever it is traced.

        TensorFlow traces it twice where it makes variables, and the second time counts. AutoGraph
        converts it as if it were traced itself, whatever it leaves alone of what others call.
        """
        is_converted = not hasattr(function, "autograph_info__")

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            self.read()
            found = tf.autograph.to_graph(function) if is_converted else function
            return found(*args, **kwargs)

        return tf.autograph.experimental.do_not_convert(traced)

    def put_back(self) -> None:
        """Has what is traced from now on find them as they were read."""
        for holder, attributes in self._attributes:
            vars(holder).update(attributes)


def _is_number(attribute: Any) -> bool:
    return type(attribute) in (int, float)
