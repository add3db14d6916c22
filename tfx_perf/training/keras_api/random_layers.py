"""Random layers of tf_keras whose state can be saved."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfx_perf.training.keras_api.base_api import all_layers

_LEGACY, _STATEFUL = "legacy_stateful", "stateful"


class SaveableRandomLayers:
    """Has a model's random layers (Dropout, ...) draw from generators with a state.

    tf_keras draws from operations whose state lives in the compiled graph, where nobody can
    read it; its `enable_tf_random_generator` would give each layer a `tf.random.Generator`
    instead. This does the same for layers that exist: those of Keras 3 are that way already. The
    masks are others, as random as before, and follow from the same seeds.

    The generators live as long as this object, because the graphs that use them do.
    """

    def __init__(self, model: Any) -> None:
        """Changes nothing yet.

        Args:
            model: a Keras model; no function that is used with it while `installed` lasts has been
                traced elsewhere.
        """
        self._model = model
        self._stateful: dict[int, tuple[Any, dict[str, Any]]] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Wraps a training, after which the layers are as they were."""
        before = []
        with self._model.distribute_strategy.scope():
            for layer in all_layers(self._model):
                generator = getattr(layer, "_random_generator", None)
                if getattr(generator, "_rng_type", None) == _LEGACY and _may_draw(layer):
                    before.append((generator, dict(vars(generator))))
                    self._install(generator)
        try:
            yield
        finally:
            for generator, attributes in before:
                vars(generator).clear()
                vars(generator).update(attributes)

    def _install(self, generator: Any) -> None:
        if id(generator) in self._stateful:
            vars(generator).update(self._stateful[id(generator)][1])
            return
        generator._rng_type, generator._built = _STATEFUL, False
        generator._maybe_init()
        self._stateful[id(generator)] = generator, dict(vars(generator))


def _may_draw(layer: Any) -> bool:
    """Whether a layer may draw numbers; a recurrent one without dropout does not even seed them."""
    return not hasattr(layer, "recurrent_dropout") or bool(layer.dropout or layer.recurrent_dropout)
