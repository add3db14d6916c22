"""The trainings that are compared."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        description: for people.
        model: a name in `user_module.MODELS`; empty for TFX's taxi template with its own module.
        batch_size: examples in a step.
        steps: of the training.
        lines: the Keras packages it is trained with; the taxi template has its own.
    """

    description: str
    model: str
    batch_size: int
    steps: int
    lines: tuple[str, ...] = ("keras", "tf_keras")


def _taxi(batch_size: int, steps: int) -> Training:
    return Training(f"TFX's taxi template, batch {batch_size:,}", "", batch_size, steps, ("own",))


TRAININGS = {
    "taxi-40": _taxi(40, 5000),
    "taxi-1024": _taxi(1024, 5000),
    "dense": Training("3 x 256 units on 64 numbers", "dense", 64, 2000),
    "wide-deep": Training("wide and deep, 8 numbers and 6 categories", "wide_deep", 64, 3000),
    "embeddings": Training("2 embeddings of 20,000 x 64", "embeddings", 64, 3000),
    "cnn": Training("2 convolutions on 28 x 28", "cnn", 64, 2000),
    "lstm": Training("bidirectional LSTM of 64 on 64 words", "lstm", 64, 200),
    "train-step": Training("an own train_step, 2 x 128 units", "train_step", 64, 5000),
    "dense-long": Training("as dense, five minutes", "dense", 64, 60_000, ("keras",)),
    "cnn-long": Training("as cnn, fifteen minutes", "cnn", 64, 40_000, ("keras",)),
}
