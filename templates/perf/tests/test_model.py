"""The model learns from the data."""

import numpy as np

import make_data
from models import features, model


class _Transform:
    """The part of Transform's output that `build` uses."""

    def vocabulary_size_by_name(self, name: str) -> int:
        return {"channel": 3, "country": 5}[name]


def _batch(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    made = make_data.rows(count)
    words = {"channel": make_data.CHANNELS, "country": make_data.COUNTRIES}
    columns = {
        name: np.array([[order[name]] for order in made], np.float32) for name in features.NUMERIC
    }
    columns["amount"] = np.log(columns["amount"])
    for name, known in words.items():
        columns[name] = np.array([[known.index(order[name])] for order in made])
    return columns, np.array([[order[features.LABEL]] for order in made])


def test_it_learns() -> None:
    columns, labels = _batch(2000)
    network = model.build(_Transform())
    before, _ = network.evaluate(columns, labels, verbose=0)
    network.fit(columns, labels, epochs=5, verbose=0)
    after, accuracy = network.evaluate(columns, labels, verbose=0)
    assert after < before
    assert accuracy > 0.7


def test_it_gives_probabilities() -> None:
    columns, _ = _batch(10)
    network = model.build(_Transform())
    probabilities = network.predict(columns, verbose=0)
    assert probabilities.shape == (10, 1)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
