"""StateTolerance: how far results may differ from Keras' because of rounding or chance.

Rounding errors grow at a rate that depends on the model: not at all where a layer averages, by
many orders of magnitude in a training at the edge of stability, and to full steps where an
optimizer divides a gradient that is zero in theory by its size. So the rate is measured: the
reference trains once more from weights that differ in the last place, and each variable and
each figure in the logs may differ from the reference by as much as that did, times `_FACTOR`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfx_perf.training.tuning.initial_state import epsilon_of

# XLA and fused kernels round in every operation of every step, but the second run was off by only
# one rounding of each weight. The models of `tests/training/numeric_models.py` need at most 3, but
# TensorFlow's Adam kernel rounds 1 - beta_2, which for 0.999 leads to 22 times `_ROUNDINGS`.
_FACTOR = 30.0
# The smallest spread to assume, in last places: the random errors of about twenty steps.
_ROUNDINGS = 5.0
# Factor on the spread of draws, since two draws may by chance be closer to each other than to a
# third. It is multiplied by 1 + `_FEW` / size, since small variables may be much closer.
_DRAWS, _FEW = 5.0, 10.0
# A relative spread above this is not caused by rounding alone, but by chance or chaos.
_LARGE = 1e-3
# Number of examples that may end up on the other side of a metric's threshold.
_FLIPPED_EXAMPLES = 2.0
_CHUNK = 2**22  # elements compared at once

Values = Mapping[str, Any]  # by name: arrays, or variables, read only when they are compared


@dataclasses.dataclass(frozen=True)
class TrainedState:
    """The variables, by name, and the last logs of a short training."""

    values: Values
    logs: Values

    def kept(self) -> "TrainedState":
        """Returns a copy on the host, which the next training does not change."""
        values = {name: np.asarray(each.numpy()) for name, each in self.values.items()}
        return TrainedState(values, self.logs)


@dataclasses.dataclass(frozen=True)
class Deviation:
    """The largest difference between two trained states, compared with the allowed one."""

    name: str  # of the variable, or of the figure in the logs
    relative: float  # its norm over that of the reference
    allowed: float  # in the same measure
    cause: str  # of the allowed difference, `rounding` or `chance`; empty if none

    def __str__(self) -> str:
        explained = f"{self.cause} explains {self.allowed:.1g}" if self.cause else "but must not"
        return f"{self.name} differs by {self.relative:.1g} of its size, {explained}"


class StateTolerance:
    """The reference's state, and how far other states may differ from it."""

    def __init__(
        self,
        reference: TrainedState,
        *,
        metrics: Iterable[str],
        examples: int,
        is_exact: bool = False,
    ) -> None:
        """Keeps the reference; `metrics` names variables that sum or count its examples.

        With `is_exact`, other states may not differ at all.
        """
        self._is_exact = is_exact
        self.is_random = False  # by chance, not by rounding alone
        self._reference = dict(_all(reference))
        self._sizes = {name: _norm(value) for name, value in self._reference.items()}
        self._metrics = frozenset(() if is_exact else metrics)
        self._examples = examples
        self._spread = dict.fromkeys(self._reference, 0.0)
        self._typical = 0.0  # spread of a variable over its size

    @property
    def is_large(self) -> bool:
        """Whether the measured difference is larger than rounding usually causes."""
        return any(
            not distance <= _LARGE * self._sizes[name]
            for name, distance in self._spread.items()
            if name not in self._metrics
        )

    def allow(self, other: TrainedState, *, by_chance: bool = False) -> None:
        """Allows the difference of another reference run, from weights off in the last place.

        With `by_chance`, that run began with the same weights, or drew other numbers.
        """
        self.is_random |= by_chance
        for name, distance in self._distances(other).items():
            if np.isfinite(distance):  # otherwise nothing explains it
                self._spread[name] = max(self._spread[name], distance)
        shares = [
            self._spread[name] / self._sizes[name]
            for name, value in self._reference.items()
            if self._sizes[name] and _epsilon(value) and name not in self._metrics
        ]
        self._typical = float(np.median(shares)) if shares else 0.0

    def repeats(self, other: TrainedState) -> bool:
        """Whether a state equals the reference's except for the last places."""
        distances = self._distances(other)
        return all(distance <= self._least(name) for name, distance in distances.items())

    def exceeded(self, other: TrainedState, *, loss_tolerance: float) -> Deviation | None:
        """Returns the difference that most exceeds what is allowed, None if none does.

        `loss_tolerance` is the relative difference in the logs that random models may always have.
        """
        has_flipped, deviations = False, []
        cause = "chance" if self.is_random else "rounding"
        if self._is_exact:
            cause = ""  # nothing is allowed
        for name, distance in self._distances(other).items():
            factor = self._factor(name)
            allowed = factor * max(self._spread[name], self._least(name))
            if _epsilon(self._reference[name]):
                allowed = max(allowed, factor * self._typical * self._sizes[name])
            if name in self._metrics and not distance <= allowed:
                has_flipped = True
                flipped = _FLIPPED_EXAMPLES * self._largest(name) / self._examples
                allowed = max(allowed, flipped)
            if self.is_random and is_log(name):
                allowed = max(allowed, loss_tolerance * self._sizes[name])
            if not distance <= allowed:
                size = self._sizes[name] or 1.0
                deviations.append(Deviation(name, distance / size, allowed / size, cause))
        # A figure that is computed from counts differs because the counts do.
        deviations = [each for each in deviations if not (has_flipped and _is_counted(each.name))]
        return max(deviations, key=_excess, default=None)

    def _factor(self, name: str) -> float:
        """Returns the factor by which a difference may exceed the measured one."""
        if not self.is_random:
            return _FACTOR
        return _DRAWS if is_log(name) else _DRAWS * (1 + _FEW / max(1, self._reference[name].size))

    def _least(self, name: str) -> float:
        """Returns the effect of a few roundings on a variable, whatever was measured."""
        roundings = 0.0 if self._is_exact else _ROUNDINGS
        return roundings * _epsilon(self._reference[name]) * self._sizes[name]

    def _largest(self, name: str) -> float:
        value = np.abs(np.asarray(self._reference[name], "float64"))
        return float(np.max(value, where=np.isfinite(value), initial=0.0))

    def _distances(self, other: TrainedState) -> dict[str, float]:
        values = dict(_all(other))
        return {name: _distance(values.get(name), value) for name, value in self._reference.items()}


def is_loss(name: str) -> bool:
    """Whether a metric's name is that of a loss, a mean of numbers in which nothing is counted."""
    return name == "loss" or name.endswith("_loss")


def is_log(name: str) -> bool:
    """Whether a name is that of a figure in the logs."""
    return name.startswith("logs[")


def _is_counted(name: str) -> bool:
    return is_log(name) and not is_loss(name[len("logs['") : -len("']")])


def _excess(deviation: Deviation) -> float:
    if not np.isfinite(deviation.relative):
        return np.inf
    return deviation.relative / max(deviation.allowed, 1e-300)


def _all(state: TrainedState) -> Iterator[tuple[str, np.ndarray]]:
    """Yields values and logs by name; does not read them."""
    yield from state.values.items()
    yield from ((f"logs[{name!r}]", value) for name, value in state.logs.items())


def _epsilon(value: np.ndarray) -> float:
    return epsilon_of(value.dtype)


def _norm(value: np.ndarray) -> float:
    if not _epsilon(value):
        return float(np.sqrt(value.size))
    total = 0.0
    for part in _chunks(value):
        finite = np.where(np.isfinite(part), part, 0.0)
        total += float(finite @ finite)
    return float(np.sqrt(total))


def _distance(actual: Any, expected: np.ndarray) -> float:
    """Returns the norm of the difference; for non-floats, the root of the number that differ."""
    if actual is None:
        return np.inf
    actual = np.asarray(actual.numpy() if hasattr(actual, "numpy") else actual)
    if actual.shape != expected.shape:
        return np.inf
    if not _epsilon(expected):
        return float(np.sqrt(np.count_nonzero(actual != expected)))
    total = 0.0
    for one, other in zip(_chunks(actual), _chunks(expected), strict=True):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        difference = np.subtract(one, other, where=~same, out=np.zeros_like(one))
        total += float(difference @ difference)
    return float(np.sqrt(total))


def _chunks(value: np.ndarray) -> Iterator[np.ndarray]:
    """Yields parts of an array in float64, so that no copy of a large one is needed."""
    flat = value.reshape(-1)
    for begin in range(0, flat.size, _CHUNK):
        yield flat[begin : begin + _CHUNK].astype("float64")
