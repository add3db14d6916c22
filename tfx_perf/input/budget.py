"""Limits on a search: the time available, and the time that a faster input can save."""

import dataclasses
import math
import time

from tfx_perf.core import formatting
from tfx_perf.input import measure
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.record import Confirmation

_MEASURED = 0.86  # share of the time after which nothing more is measured


class TimeBudget:
    """Wall time from now on; each phase gets a share of what is left."""

    def __init__(self, seconds: float, *, spent_seconds: float = 0.0) -> None:
        self.is_limited = False
        self._began = time.monotonic() - spent_seconds
        self._end = max(time.monotonic(), self._began + _MEASURED * seconds)

    def limit(self, seconds: float) -> None:
        """Limits the time left to `seconds`."""
        end = time.monotonic() + seconds
        if end < self._end:
            self._end, self.is_limited = end, True

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    @property
    def left_seconds(self) -> float:
        """Time until nothing more may be measured, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def until(self, share: float = 1.0) -> float:
        """Returns the value of `time.monotonic()` when this share of what is left is used up."""
        return time.monotonic() + share * self.left_seconds


@dataclasses.dataclass(frozen=True)
class Gain:
    """The trainings to come, and how many examples they read in all (infinite if unknown)."""

    example_count: float
    expected_runs: int = 1
    preparation_seconds: float = 0.0  # of a faster input in each training, besides reading
    split_example_count: int = 0  # examples that a faster input first reads once

    def possible_seconds(self, diagnosis: Diagnosis) -> float:
        """Returns the most seconds that faster input can save, less the time to prepare it."""
        seconds = self._preparation_seconds(diagnosis)
        return max(0.0, self._most_seconds(diagnosis) - self.expected_runs * seconds)

    def left_seconds(self, final: Confirmation) -> float:
        """Returns the most seconds that another input can save over one that was compared."""
        if final.fed_ratio is None:
            return math.inf
        rate = final.tuned_examples_per_second.value
        return self._seconds(rate, ratio=1 / final.fed_ratio.value)

    def too_little(self, diagnosis: Diagnosis, *, search_seconds: float) -> str:
        """Returns why no search is made; the shortest one takes `search_seconds`."""
        if not self._most_seconds(diagnosis):
            return "Reading does not slow training, so no search was made."
        rate, what = diagnosis.together_examples_per_second, "Reading and training take"
        if rate is None:
            rate, what = diagnosis.pipeline_examples_per_second, "Reading takes"
        seconds = formatting.format_seconds(self.example_count / rate.value)
        if self.expected_runs > 1:
            seconds = f"{seconds} in {self.expected_runs} runs"
        possible_seconds = self.possible_seconds(diagnosis)
        if not possible_seconds:
            preparation = formatting.format_seconds(self._preparation_seconds(diagnosis))
            return (
                f"{what} about {seconds} with the default. Preparing a faster input takes about "
                f"{preparation} a run, more than it can save, so the default stays."
            )
        enough_runs = math.ceil(self.expected_runs * search_seconds / possible_seconds)
        return (
            f"{what} about {seconds} with the default, of which no input can save more than "
            f"{formatting.format_seconds(possible_seconds)}: too little for a search of about "
            f"{formatting.format_seconds(search_seconds)}, so the default stays. A "
            f"search would pay off with schedule.expected_runs: {enough_runs}."
        )

    def _preparation_seconds(self, diagnosis: Diagnosis) -> float:
        """Returns the time to prepare a faster input for a training, with one pass of reading."""
        rate = diagnosis.pipeline_examples_per_second.value
        return self.preparation_seconds + self.split_example_count / rate

    def _most_seconds(self, diagnosis: Diagnosis) -> float:
        fed, headroom = diagnosis.together_examples_per_second, diagnosis.headroom_ratio
        if not (fed and headroom):
            return self.example_count / diagnosis.pipeline_examples_per_second.low
        doubt = 1.0 if diagnosis.rounds >= measure.MIN_ROUNDS else measure.BEYOND_DOUBT
        return self._seconds(fed.value, ratio=doubt * headroom.high)

    def _seconds(self, examples_per_second: float, *, ratio: float) -> float:
        if ratio <= 1:
            return 0.0
        return self.example_count / examples_per_second * (1 - 1 / ratio)
