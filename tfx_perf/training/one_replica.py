"""What several replicas bring, held against one that trains alone."""

from collections.abc import Iterable, Iterator

from tfx_perf.training.measuring.accounts import CommunicationAccount, OneReplica
from tfx_perf.training.record import TrainingRecord

# What may differ beside the number of replicas: how they train together, and what they count.
_OF_REPLICAS = {
    "strategy", "replica_count", "worker_count", "host_count", "parameter_server_count",
    "flops_per_step",
}  # fmt: skip
SURELY_SLOWER = 0.9
"""Times the speed of another run: two of the same differ by some percent."""

_NOTABLE_SHARE = 0.1  # of the time


def of_runs_before(
    record: TrainingRecord, before: Iterable[tuple[str, TrainingRecord]]
) -> OneReplica | None:
    """Returns the last run of the same training on one replica, or what such runs on several knew.

    Args:
        record: of a training on several.
        before: where the records of runs before lie, and what they are, the newest first.

    Returns:
        None if there is none, or the training is itself on one.
    """
    if not record.is_of_several:
        return None
    for source, found in before:
        if not _is_same(record, found):
            continue
        speed = found.figures()["examples_per_second"]
        if found.one_replica:
            return found.one_replica
        if speed and not found.is_of_several:
            return OneReplica(source=source, examples_per_second=speed, plan=found.plan)
    return None


def is_faster(record: TrainingRecord) -> bool:
    """Whether one replica surely trains faster than those of a training, as far as is known.

    Args:
        record: of the training.
    """
    speedup = record.figures()["replica_speedup_ratio"]
    if speedup is not None:
        return speedup < SURELY_SLOWER
    return record.communication is not None and _largest_speedup(record.communication) < 1


def in_words(record: TrainingRecord) -> list[str]:
    """Returns what the replicas of a training bring, in sentences; none if nobody knows.

    Where one replica trains faster, they say why, and what to do.

    Args:
        record: of the training.
    """
    alone, account = record.one_replica, record.communication
    speedup = record.figures()["replica_speedup_ratio"]
    if alone is not None and speedup is not None:
        before = f"the last run on one replica ({alone.source})"
        said = f"The replicas train {speedup:.2f} times as fast as {before}"
    elif account is not None:
        said = (
            f"The replicas wait for each other in {account.wait_share:.0%} of a step, and so are "
            f"at most {_largest_speedup(account):.2f} times as fast as one replica alone"
        )
    else:
        return []
    if not is_faster(record):
        return [f"{said}."]
    causes = "; ".join(_causes(record))
    return [
        f"{said}: here one replica trains faster.",
        *([f"Why: {causes}."] if causes else []),
        f"What to do: {_remedy(record)}.",
    ]


def _largest_speedup(account: CommunicationAccount) -> float:
    """Returns how many times as fast as one alone the replicas are at the most.

    What they compute together is no less than what one of them would compute alone, and it begins
    as many epochs.
    """
    start, step = account.epoch_start_seconds, account.step_time_seconds
    computing = step * (1 - account.wait_share)
    return (len(account.replicas) * computing + start) / (step + start)


def _causes(record: TrainingRecord) -> Iterator[str]:
    """Yields what makes replicas slow."""
    account, alone = record.communication, record.one_replica
    if account is not None:
        if alone is not None and account.wait_share > _NOTABLE_SHARE:  # else it is said already
            yield f"they wait for each other in {account.wait_share:.0%} of a step"
        if account.epoch_start_share > _NOTABLE_SHARE:
            share = f"{account.epoch_start_share:.0%}"
            yield f"the beginnings of epochs take {share} of the time: longer epochs have fewer"
    if alone is not None and alone.plan not in (None, record.plan):
        uncompiled = ", as XLA does not compile the steps of several in one computation"
        because = uncompiled if alone.plan.xla_call else ""
        yield f"one trained with {alone.plan}, and these with {record.plan}{because}"
    elif any(trial.plan.xla_call and trial.status == "untried" for trial in record.trials):
        yield "XLA does not compile the steps of several in one computation, as it may those of one"
    if record.worker_count > 1 and record.host_count == 1:
        yield "the workers share the processor of one machine"


def _remedy(record: TrainingRecord) -> str:
    if record.host_count > 1:
        return "give each replica a larger batch, or a faster network"
    if record.worker_count > 1:
        return "train in one process, without distribution.workers or tfx-perf launch"
    return "train on one device, e.g. with distribution.strategy: one_device"


def _is_same(record: TrainingRecord, other: TrainingRecord) -> bool:
    one, two = (
        {field: value for field, value in each.environment.items() if field not in _OF_REPLICAS}
        for each in (record, other)
    )
    codes = {each.key["code"] for each in (record, other) if "code" in each.key}
    return one == two and len(codes) <= 1
