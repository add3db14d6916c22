"""The rules: what a search may cost, and which candidate is chosen after it."""

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from tfx_perf.core import formatting, statistics
from tfx_perf.input import measure
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.record import DEFAULT, CandidateOutcome, FinalComparison

NOT_WORTH_IT = "not examined: it would take longer than what is left to gain"
"""Why a candidate is not looked at where the search ends before."""

_REASON_LENGTH = 160  # in a headline; the table has all of it


@dataclasses.dataclass(frozen=True)
class Gain:
    """The trainings to come, and how many examples they read in all (infinite if unknown)."""

    example_count: float
    planned_runs: int = 1
    preparation_seconds: float = 0.0  # of a faster input, in each training

    def possible_seconds(self, diagnosis: Diagnosis) -> float:
        """Returns the most seconds that faster input can save, less what takes to prepare it."""
        preparation_seconds = self.planned_runs * self.preparation_seconds
        return max(0.0, self._most_seconds(diagnosis) - preparation_seconds)

    def left_seconds(self, final: FinalComparison) -> float:
        """Returns the most that yet another input can save in place of one that was compared."""
        if final.fed_ratio is None:
            return math.inf
        rate = final.tuned_examples_per_second.value
        return self._seconds(rate, ratio=1 / final.fed_ratio.value)

    def too_little(self, diagnosis: Diagnosis, *, search_seconds: float) -> str:
        """Returns why there is no search, the shortest of which takes `search_seconds`."""
        if not self._most_seconds(diagnosis):
            return (
                "Training is as fast as if its input cost nothing, so no faster one was looked for."
            )
        rate, what = diagnosis.together_examples_per_second, "Reading and training take"
        if rate is None:
            rate, what = diagnosis.pipeline_examples_per_second, "Reading takes"
        seconds = formatting.format_seconds(self.example_count / rate.value)
        possible_seconds = self.possible_seconds(diagnosis)
        if not possible_seconds:
            return (
                f"{what} about {seconds} with the default, of which no input can save more than it "
                "takes to prepare one, so the default stays."
            )
        enough_runs = math.ceil(self.planned_runs * search_seconds / possible_seconds)
        return (
            f"{what} about {seconds} with the default, of which no input can save more than "
            f"{formatting.format_seconds(possible_seconds)}: too little for a search of about "
            f"{formatting.format_seconds(search_seconds)}, so the default stays. With "
            f"schedule.planned_runs: {enough_runs} there would be one."
        )

    def _most_seconds(self, diagnosis: Diagnosis) -> float:
        """Returns the most seconds that faster input can save, as far as it was measured."""
        fed, headroom = diagnosis.together_examples_per_second, diagnosis.headroom_ratio
        if not (fed and headroom):
            return self.example_count / diagnosis.pipeline_examples_per_second.low
        doubt = 1.0 if diagnosis.rounds >= measure.MIN_ROUNDS else measure.BEYOND_DOUBT
        return self._seconds(fed.value, ratio=doubt * headroom.high)

    def _seconds(self, examples_per_second: float, *, ratio: float) -> float:
        """Returns what training `ratio` times as fast saves."""
        if ratio <= 1:
            return 0.0
        return self.example_count / examples_per_second * (1 - 1 / ratio)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The chosen candidate, why in a sentence, and the last comparison if it came to that."""

    name: str
    reason: str
    final: FinalComparison | None = None


def ratios(samples: measure.Samples) -> dict[str, statistics.Interval]:
    """Returns how many times as fast as the default each is, the default among them."""
    default = measure.rates(samples[DEFAULT])
    return {
        name: statistics.ratio_interval(measure.rates(own), default)
        for name, own in samples.items()
    }


def with_figures(outcome: CandidateOutcome, samples: measure.Samples) -> CandidateOutcome:
    """Returns the outcome with what was measured of it beside the default."""
    own = samples[outcome.name]
    cpu_seconds = [sample.cpu_seconds_per_example for sample in own]
    return outcome.model_copy(
        update={
            "examples_per_second": statistics.median_interval(measure.rates(own)),
            "ratio": ratios(samples)[outcome.name],
            "cpu_seconds_per_example": statistics.median_interval(cpu_seconds).value,
        }
    )


def is_decided(samples: measure.Samples) -> bool:
    """Whether one candidate's interval lies above those of all others."""
    *others, best = sorted(ratios(samples).values(), key=lambda interval: interval.value)
    return not others or best.surely_above(max(other.high for other in others))


def is_beyond_doubt(samples: measure.Samples) -> bool:
    """Whether the fastest is so much faster than the default that one round tells."""
    return max(ratio.low for ratio in ratios(samples).values()) > measure.BEYOND_DOUBT


def takes_less_cpu(samples: measure.Samples, name: str) -> bool:
    """Whether a candidate took less CPU time an example than the default, in each round."""
    pairs = zip(samples[name], samples[DEFAULT], strict=True)
    return all(one.cpu_seconds_per_example < other.cpu_seconds_per_example for one, other in pairs)


def best_of(outcomes: Iterable[CandidateOutcome], *, margin: float) -> CandidateOutcome | None:
    """Returns the fastest, by CPU time if several are; None if none surely beats the default."""
    faster = [
        (item.ratio, item)
        for item in outcomes
        if item.ratio and item.ratio.surely_above(1 + margin)
    ]
    if not faster:
        return None
    fastest, _ = max(faster, key=lambda pair: pair[0].value)
    as_fast = [item for ratio, item in faster if ratio.high >= fastest.low]
    return min(as_fast, key=lambda item: item.cpu_seconds_per_example or 0.0)


def none_measured(
    outcomes: Sequence[CandidateOutcome], *, memory_budget_bytes: float
) -> Choice:
    """Returns the default where every candidate was dropped."""
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.needed_bytes is None:
            names.setdefault(outcome.reason, []).append(outcome.name)
    memory = without_memory(outcomes, memory_budget_bytes=memory_budget_bytes)
    reasons = [
        "No candidate could be measured, so the default stays.",
        *filter(None, [memory]),
        *(
            f"{', '.join(found)}: "
            f"{textwrap.shorten(reason, _REASON_LENGTH, placeholder=' …')}."
            for reason, found in names.items()
        ),
    ]
    return Choice(DEFAULT, " ".join(reasons))


def without_memory(
    outcomes: Iterable[CandidateOutcome], *, memory_budget_bytes: float
) -> str:
    """Returns which candidates the budget left out and what would let one in; empty if none."""
    over = {
        outcome.name: outcome.needed_bytes
        for outcome in outcomes
        if outcome.needed_bytes is not None
    }
    if not over:
        return ""
    smallest = min(over, key=lambda name: over[name])
    return (
        f"The memory budget of {formatting.format_bytes(memory_budget_bytes)} leaves out "
        f"{', '.join(over)}; the least, {smallest}, needs "
        f"{formatting.format_bytes(over[smallest])} or more: raise "
        "input.memory_budget_bytes."
    )


def too_few_rounds(final: FinalComparison | None = None) -> Choice:
    """Returns the default where the time ended before the last comparison was proof."""
    reason = (
        f"There was time for {final.rounds if final else 0} of the {measure.MIN_ROUNDS} rounds "
        "that a comparison needs, so the default stays."
    )
    return Choice(DEFAULT, reason, final)


def none_is_faster(margin: float) -> Choice:
    """Returns the default where `best_of` found nothing."""
    reason = (
        f"No candidate was faster than the default by more than {margin:.0%} beyond its "
        "interval, so the default stays."
    )
    return Choice(DEFAULT, reason)


def verdict(final: FinalComparison, *, margin: float) -> Choice:
    """Returns what is chosen after the last comparison.

    The default stays unless the whole interval of the ratio lies above 1 + margin. If the time
    ended early, two rounds suffice that are beyond doubt: staying with a default that is forty
    times as slow would cost more than any chance of an error.
    """
    where = "on the train step" if final.on_train_step else "with nothing else running"
    figures = (
        f"{final.ratio.value:.3g} times as fast as TFXIO's default {where} "
        f"({final.ratio.spread})"
    )
    is_beyond_doubt = final.rounds > 1 and final.ratio.surely_above(measure.BEYOND_DOUBT)
    if final.rounds < measure.MIN_ROUNDS and not is_beyond_doubt:
        return too_few_rounds(final)
    if final.ratio.surely_above(1 + margin):
        return Choice(final.candidate, f"{final.candidate} is {figures}.", final)
    reason = (
        f"{final.candidate} was {figures}: not above 1 by the margin of {margin:.0%}, so the "
        "default stays."
    )
    return Choice(DEFAULT, reason, final)


def judged(
    outcomes: Mapping[str, CandidateOutcome], *, chosen: str, margin: float
) -> tuple[CandidateOutcome, ...]:
    """Returns the outcomes with the choice, and for the others why not, filled in."""
    winner = outcomes.get(chosen.partition("+")[0])  # as it was compared with the others

    def why_not(outcome: CandidateOutcome) -> str:
        if outcome.name == DEFAULT:
            return f"{chosen} is faster"
        if not outcome.ratio:
            return "not measured: the time was up"
        if not outcome.ratio.surely_above(1 + margin):
            return "not faster than the default beyond the margin"
        if chosen == DEFAULT:
            return "faster alone, but not proven in the last comparison"
        if winner and winner.ratio and winner.ratio.value < outcome.ratio.value:
            return f"no faster than {winner.name} beyond the noise, and takes more CPU time"
        return f"faster than the default, but {chosen} was chosen"

    def one(outcome: CandidateOutcome) -> CandidateOutcome:
        if outcome.name == chosen:
            return outcome.model_copy(update={"status": "chosen", "reason": ""})
        if outcome.status == "dropped":
            return outcome
        return outcome.model_copy(update={"reason": why_not(outcome)})

    return tuple(map(one, outcomes.values()))
