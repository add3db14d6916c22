"""The rules by which a candidate is chosen."""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from tfx_perf import formatting, statistics
from tfx_perf.input import record as record_lib
from tfx_perf.input.search import final as final_lib
from tfx_perf.input.timing import measure

NOT_WORTH_IT = "not examined: it would take longer than what is left to gain"
"""Why a candidate is not looked at where the search ends before."""

_REASON_LENGTH = 160  # in a headline; the table has all of it


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the search came to.

    Attributes:
        name: of the chosen candidate.
        reason: why, in a sentence.
        final: the last comparison; None if no candidate got so far.
    """

    name: str
    reason: str
    final: final_lib.FinalComparison | None = None


def with_figures(
    outcome: record_lib.CandidateOutcome, samples: measure.Samples
) -> record_lib.CandidateOutcome:
    """Returns the outcome with what was measured of it beside the default."""
    own = samples[outcome.name]
    rates = measure.rates(own)
    return outcome.model_copy(
        update={
            "examples_per_second": statistics.median_interval(rates),
            "ratio": statistics.ratio_interval(
                rates, measure.rates(samples[record_lib.DEFAULT])
            ),
            "cpu_seconds_per_example": statistics.median_interval(
                [sample.cpu_seconds_per_example for sample in own]
            ).value,
        }
    )


def is_decided(samples: measure.Samples) -> bool:
    """Whether one candidate's interval lies above those of all others."""
    default = measure.rates(samples[record_lib.DEFAULT])
    intervals = sorted(
        (statistics.ratio_interval(measure.rates(own), default) for own in samples.values()),
        key=lambda interval: interval.value,
    )
    return len(intervals) == 1 or intervals[-1].surely_above(
        max(item.high for item in intervals[:-1])
    )


def is_beyond_doubt(samples: measure.Samples) -> bool:
    """Whether the fastest is so much faster than the default that one round tells."""
    default = measure.rates(samples[record_lib.DEFAULT])
    ratios = [statistics.ratio_interval(measure.rates(own), default) for own in samples.values()]
    return max(ratio.low for ratio in ratios) > measure.BEYOND_DOUBT


def best_of(
    outcomes: Iterable[record_lib.CandidateOutcome], *, margin: float
) -> record_lib.CandidateOutcome | None:
    """Returns the best candidate, None if none is surely faster than the default.

    Of those that cannot be told from the fastest, the one that takes the least CPU time: it
    leaves the most to the training.
    """
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
    outcomes: Sequence[record_lib.CandidateOutcome], *, memory_budget_bytes: float
) -> str:
    """Returns the reason for the default where every candidate was dropped.

    Args:
        outcomes: of the candidates.
        memory_budget_bytes: what they were allowed to hold.
    """
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.needed_bytes is None:
            names.setdefault(outcome.reason, []).append(outcome.name)
    others = [f"{', '.join(found)}: {_brief(reason)}." for reason, found in names.items()]
    memory = without_memory(outcomes, memory_budget_bytes=memory_budget_bytes)
    return " ".join(
        ["No candidate could be measured, so the default stays.", *filter(None, [memory]), *others]
    )


def without_memory(
    outcomes: Iterable[record_lib.CandidateOutcome], *, memory_budget_bytes: float
) -> str:
    """Returns which candidates the budget left out and what would let one in; empty if none.

    Args:
        outcomes: of the candidates.
        memory_budget_bytes: what they were allowed to hold.
    """
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


def _brief(reason: str) -> str:
    return textwrap.shorten(reason, _REASON_LENGTH, placeholder=" …")


def too_few_rounds(rounds: int) -> str:
    """Returns the reason for the default where the time ended before a comparison was proof."""
    return (
        f"There was time for {rounds} of the {measure.MIN_ROUNDS} rounds that a comparison needs, "
        "so the default stays."
    )


def none_is_faster(margin: float) -> str:
    """Returns the reason for the default where `best_of` found nothing."""
    return (
        f"No candidate was faster than the default by more than {margin:.0%} beyond its "
        "interval, so the default stays."
    )


def improvement(
    samples: measure.Samples, *, over: str, variants: Sequence[str], margin: float
) -> str | None:
    """Returns the fastest of the variants that is surely faster than `over`, None if none is."""
    reference = measure.rates(samples[over])
    ratios = {
        name: statistics.ratio_interval(measure.rates(samples[name]), reference)
        for name in variants
    }
    surely = {name: ratio.value for name, ratio in ratios.items() if ratio.surely_above(1 + margin)}
    return max(surely, key=lambda name: surely[name], default=None)


def verdict(final: final_lib.FinalComparison, *, margin: float) -> Choice:
    """Returns what is chosen after the last comparison.

    The default stays unless the whole interval of the ratio lies above 1 + margin. Where the time
    ended early, two rounds are enough if the candidate was beyond doubt in both: to stay with a
    default that takes forty times as long would cost more than any chance of an error.
    """
    where = "on the train step" if final.on_train_step else "with nothing else running"
    figures = (
        f"{final.ratio.value:.3g} times as fast as TFXIO's default {where} "
        f"({final.ratio.spread})"
    )
    is_beyond_doubt = final.rounds > 1 and final.ratio.surely_above(measure.BEYOND_DOUBT)
    if final.rounds < measure.MIN_ROUNDS and not is_beyond_doubt:
        return Choice(record_lib.DEFAULT, too_few_rounds(final.rounds), final)
    if final.ratio.surely_above(1 + margin):
        return Choice(final.candidate, f"{final.candidate} is {figures}.", final)
    reason = (
        f"{final.candidate} was {figures}: not above 1 by the margin of {margin:.0%}, so the "
        "default stays."
    )
    return Choice(record_lib.DEFAULT, reason, final)


def judged(
    outcomes: Mapping[str, record_lib.CandidateOutcome], *, chosen: str, margin: float
) -> tuple[record_lib.CandidateOutcome, ...]:
    """Returns the outcomes with the choice, and for the others why not, filled in."""
    winner = outcomes.get(chosen.partition("+")[0])  # as it was compared with the others
    return tuple(_judged(outcome, chosen, margin, winner) for outcome in outcomes.values())


def _judged(
    outcome: record_lib.CandidateOutcome,
    chosen: str,
    margin: float,
    winner: record_lib.CandidateOutcome | None,
) -> record_lib.CandidateOutcome:
    if outcome.name == chosen:
        return outcome.model_copy(update={"status": "chosen", "reason": ""})
    if outcome.status == "dropped":
        return outcome
    if outcome.name == record_lib.DEFAULT:
        reason = f"{chosen} is faster"
    elif not outcome.ratio:
        reason = "not measured: the time was up"
    elif not outcome.ratio.surely_above(1 + margin):
        reason = "not faster than the default beyond the margin"
    elif chosen == record_lib.DEFAULT:
        reason = "faster alone, but not proven in the last comparison"
    elif winner and winner.ratio and winner.ratio.value < outcome.ratio.value:
        reason = f"no faster than {winner.name} beyond the noise, and takes more CPU time"
    else:
        reason = f"faster than the default, but {chosen} was chosen"
    return outcome.model_copy(update={"reason": reason})
