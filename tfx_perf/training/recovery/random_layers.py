"""Random layers of tf_keras whose state can be saved."""

import contextlib
from collections.abc import Iterator
from typing import Any

_LEGACY, _STATEFUL = "legacy_stateful", "stateful"


@contextlib.contextmanager
def saveable_random_layers(model: Any) -> Iterator[None]:
    """Has the model's random layers (Dropout, ...) draw from generators with a state.

    tf_keras draws from operations whose state lives in the compiled graph, where nobody can
    read it; its `enable_tf_random_generator` would give each layer a `tf.random.Generator`
    instead. This does the same for layers that exist, and for as long as the context lasts: the
    layers of Keras 3 are that way already. The masks are others, as random as before, and
    follow from the same seeds.

    Args:
        model: a Keras model, none of whose training functions is traced yet.
    """
    generators = [
        generator
        for layer in model._flatten_layers()
        if getattr(generator := getattr(layer, "_random_generator", None), "_rng_type", None)
        == _LEGACY
    ]
    before = [dict(vars(generator)) for generator in generators]
    with model.distribute_strategy.scope():
        for generator in generators:
            generator._rng_type, generator._built = _STATEFUL, False
            generator._maybe_init()
    try:
        yield
    finally:
        for generator, attributes in zip(generators, before, strict=True):
            for name in ("_seed", "_rng_type", "_built", "_generator"):
                setattr(generator, name, attributes[name])
