"""The last comparison: the best candidate against the user's default, on fresh samples."""

from tfx_perf import records, statistics
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input.timing import measure

_REPEATED = "repeated"
ROUNDS = 9


class FinalComparison(records.Record):
    """How the best candidate did against the default in the end.

    Candidates are compared before with rounds that stop when decided, and the best of
    several is picked: both flatter it. These samples are new, and their number does
    not depend on them.

    Attributes:
        candidate: what was compared with the default.
        on_train_step: whether the user's own train step consumed the batches; otherwise
            they were only taken.
        default_examples_per_second: with TFXIO's default.
        tuned_examples_per_second: with the candidate.
        ratio: tuned to default, of paired samples.
        fed_ratio: tuned to one batch repeated from memory, of paired samples: 1 means that no
            faster input could help. None without a train step.
        rounds: number of samples of each.
    """

    candidate: str
    on_train_step: bool
    default_examples_per_second: statistics.Interval
    tuned_examples_per_second: statistics.Interval
    ratio: statistics.Interval
    fed_ratio: statistics.Interval | None
    rounds: int


def compare(
    candidate: str,
    *,
    default: measure.TimedDataset,
    tuned: measure.TimedDataset,
    repeated: measure.TimedDataset | None,
    batch_size: int,
    deadline_seconds: float,
    rounds: int = ROUNDS,
) -> FinalComparison:
    """Measures the candidate against the default, in turns.

    Args:
        candidate: its name.
        default: TFXIO's default and its consumer.
        tuned: the candidate and the same consumer.
        repeated: one batch from memory and the same consumer; None without a train step.
        batch_size: examples in a batch.
        deadline_seconds: value of `time.monotonic()` at which to stop.
        rounds: samples of each, if there is time.
    """
    timed_datasets = {candidate_lib.DEFAULT: default, candidate: tuned}
    if repeated is not None:
        timed_datasets[_REPEATED] = repeated
    samples = measure.measure(
        timed_datasets,
        batch_size=batch_size,
        deadline_seconds=deadline_seconds,
        max_rounds=rounds,
    )
    rates = {name: measure.rates(taken) for name, taken in samples.items()}
    return FinalComparison(
        candidate=candidate,
        on_train_step=repeated is not None,
        default_examples_per_second=statistics.median_interval(rates[candidate_lib.DEFAULT]),
        tuned_examples_per_second=statistics.median_interval(rates[candidate]),
        ratio=statistics.ratio_interval(rates[candidate], rates[candidate_lib.DEFAULT]),
        fed_ratio=(
            statistics.ratio_interval(rates[candidate], rates[_REPEATED]) if repeated else None
        ),
        rounds=len(rates[candidate]),
    )
