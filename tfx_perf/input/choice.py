"""Rules that choose a candidate after a search, and the reasons against the others."""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping

from tfx_perf.core import formatting, statistics
from tfx_perf.input import measure
from tfx_perf.input.record import DEFAULT, CandidateOutcome, Confirmation

NOT_WORTH_IT = "not examined: it would take longer than it could still save"
"""The reason recorded for candidates that are skipped because the search ends early."""

REPEATED = "repeated"
"""Name of one batch repeated from memory in the last comparison: an input that costs nothing."""

_REASON_LENGTH = 160  # characters of a reason in a headline; the table shows all of it


@dataclasses.dataclass(frozen=True)
class Choice:
    """The chosen candidate, the reason in a sentence, and the last comparison if there was one."""

    name: str
    reason: str
    final: Confirmation | None = None
    was_searched: bool = True  # False if a search would not have paid off


def ratios(samples: measure.Samples) -> dict[str, statistics.Interval]:
    """Returns how many times as fast as the default each dataset is, including the default."""
    default = measure.rates(samples[DEFAULT])
    return {
        name: statistics.ratio_interval(measure.rates(of_candidate), default)
        for name, of_candidate in samples.items()
    }


def with_figures(outcome: CandidateOutcome, samples: measure.Samples) -> CandidateOutcome:
    """Returns the outcome with its figures, measured side by side with the default."""
    taken = samples[outcome.name]
    cpu_seconds = [sample.cpu_seconds_per_example for sample in taken]
    return outcome.model_copy(
        update={
            "examples_per_second": statistics.median_interval(measure.rates(taken)),
            "ratio": ratios(samples)[outcome.name],
            "cpu_seconds_per_example": statistics.median_interval(cpu_seconds).value,
        }
    )


def is_decided(samples: measure.Samples) -> bool:
    """Whether the best interval lies above all others; after few rounds, far above them."""
    by_name = ratios(samples)
    best = max(by_name, key=lambda name: by_name[name].value)
    highest_other = max(ratio.high for name, ratio in by_name.items() if name != best)
    if len(samples[best]) < measure.MIN_ROUNDS:
        return best != DEFAULT and by_name[best].low > measure.BEYOND_DOUBT * highest_other
    return by_name[best].low > highest_other


def takes_less_cpu(samples: measure.Samples, name: str) -> bool:
    """Whether a candidate took less CPU time per example than the default in every round."""
    pairs = zip(samples[name], samples[DEFAULT], strict=True)
    return all(one.cpu_seconds_per_example < other.cpu_seconds_per_example for one, other in pairs)


def best_of(outcomes: Iterable[CandidateOutcome], *, margin: float) -> CandidateOutcome | None:
    """Returns the fastest (ties: least CPU time); None if none surely beats the default."""
    faster = [(item.ratio, item) for item in outcomes if item.ratio and item.ratio.low > 1 + margin]
    if not faster:
        return None
    fastest, _ = max(faster, key=lambda pair: pair[0].value)
    as_fast = [item for ratio, item in faster if ratio.high >= fastest.low]
    return min(as_fast, key=lambda item: item.cpu_seconds_per_example or 0.0)


def none_measured(outcomes: Iterable[CandidateOutcome], *, memory: str) -> Choice:
    """Returns the default, because all were dropped; `memory` is from `without_memory`."""
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.needed_bytes is None:
            names.setdefault(outcome.reason, []).append(outcome.name)
    reasons = [
        "No candidate could be measured, so the default stays.",
        *filter(None, [memory]),
        *(
            f"{', '.join(dropped)}: {textwrap.shorten(reason, _REASON_LENGTH, placeholder=' …')}."
            for reason, dropped in names.items()
        ),
    ]
    return Choice(DEFAULT, " ".join(reasons))


def without_memory(outcomes: Iterable[CandidateOutcome], *, memory_budget_bytes: float) -> str:
    """Returns which candidates exceed the budget and how to admit one; empty if none do."""
    over = {
        outcome.name: outcome.needed_bytes
        for outcome in outcomes
        if outcome.needed_bytes is not None
    }
    if not over:
        return ""
    smallest = min(over, key=lambda name: over[name])
    return (
        f"The memory budget of {formatting.format_bytes(memory_budget_bytes)} rules out "
        f"{', '.join(over)}; the smallest, {smallest}, needs "
        f"at least {formatting.format_bytes(over[smallest])}: raise "
        "input.memory_budget_bytes."
    )


def too_few_rounds(final: Confirmation | None = None) -> Choice:
    """Returns the default, because time ran out before the last comparison was proof."""
    reason = (
        f"There was time for {final.rounds if final else 0} of the {measure.MIN_ROUNDS} rounds "
        "that a comparison needs, so the default stays."
    )
    return Choice(DEFAULT, reason, final)


def none_is_faster(margin: float) -> Choice:
    """Returns the default, because `best_of` found nothing."""
    reason = (
        f"No candidate was faster than the default by more than {margin:.0%} beyond its "
        "interval, so the default stays."
    )
    return Choice(DEFAULT, reason)


def verdict(final: Confirmation, *, margin: float) -> Choice:
    """Returns the choice after the last comparison.

    The default stays unless the whole interval of the ratio lies above 1 + margin. If time ran out
    early, two rounds suffice if they are beyond doubt: staying with a default that is forty times
    as slow would cost more than the risk of an error.
    """
    where = "on the train step" if final.on_train_step else "when only reading"
    figures = (
        f"{final.ratio.value:.3g} times as fast as TFXIO's default {where} ({final.ratio.spread})"
    )
    is_beyond_doubt = final.rounds > 1 and final.ratio.low > measure.BEYOND_DOUBT
    if final.rounds < measure.MIN_ROUNDS and not is_beyond_doubt:
        return too_few_rounds(final)
    if final.ratio.low > 1 + margin:
        return Choice(final.candidate, f"{final.candidate} is {figures}.", final)
    reason = (
        f"{final.candidate} was {figures}: not surely {margin:.0%} faster, so the default stays."
    )
    return Choice(DEFAULT, reason, final)


def comparison(samples: measure.Samples, name: str, *, on_train_step: bool) -> Confirmation:
    """Returns how a candidate compares with the default, and with a free input if measured."""
    rates = {each: measure.rates(taken) for each, taken in samples.items()}
    fed = rates.get(REPEATED)
    return Confirmation(
        candidate=name,
        on_train_step=on_train_step,
        default_examples_per_second=statistics.median_interval(rates[DEFAULT]),
        tuned_examples_per_second=statistics.median_interval(rates[name]),
        ratio=statistics.ratio_interval(rates[name], rates[DEFAULT]),
        fed_ratio=statistics.ratio_interval(rates[name], fed) if fed else None,
        rounds=len(rates[name]),
    )


def judged(
    outcomes: Mapping[str, CandidateOutcome], *, chosen: str, margin: float
) -> tuple[CandidateOutcome, ...]:
    """Returns the outcomes with the choice, and the reasons against the others, filled in."""
    winner = outcomes[chosen]

    def why_not(outcome: CandidateOutcome) -> str:
        if outcome.name == DEFAULT:
            return f"{chosen} is faster"
        if not outcome.ratio:
            return "not measured: time ran out"
        if not outcome.ratio.low > 1 + margin:
            return "not faster than the default beyond the margin"
        if chosen == DEFAULT:
            return "faster alone, but not proven in the last comparison"
        if winner.ratio and winner.ratio.value < outcome.ratio.value:
            return f"no faster than {winner.name} beyond the noise, and takes more CPU time"
        return f"faster than the default, but {chosen} was chosen"

    def one(outcome: CandidateOutcome) -> CandidateOutcome:
        if outcome.name == chosen:
            return outcome.model_copy(update={"status": "chosen", "reason": ""})
        if outcome.status == "dropped":
            return outcome
        return outcome.model_copy(update={"reason": why_not(outcome)})

    return tuple(map(one, outcomes.values()))
