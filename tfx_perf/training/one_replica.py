"""What several replicas bring, held against runs before: one alone, workers without own cores."""

from collections.abc import Iterable, Iterator

from tfx_perf import fingerprint
from tfx_perf.training.measuring.accounts import CommunicationAccount, RunBefore
from tfx_perf.training.record import TrainingRecord

# What may differ beside the number of replicas: how they train together, and what they count.
_OF_REPLICAS = {
    "strategy", "replica_count", "worker_count", "host_count", "parameter_server_count",
    "flops_per_step",
}  # fmt: skip
_CPUS = "cpu_count"
SURELY_SLOWER = 0.9
"""Times the speed of another run: two of the same differ by some percent."""

_NOTABLE_SHARE = 0.1  # of the time


def held_against(
    record: TrainingRecord, before: Iterable[tuple[str, TrainingRecord]]
) -> TrainingRecord:
    """Returns the record with what runs before of the same training tell.

    The last one counts, or what such runs on several replicas knew already.

    Args:
        record: of the training; on one replica nothing is held against it.
        before: where the records of runs before lie, and what they are, the newest first.
    """
    if not record.is_of_several:
        return record
    alone = unbound = None
    for source, found in before:
        run = _run_before(source, found)
        different = _differences(record, found)
        if different <= _OF_REPLICAS:
            alone = alone or (found.one_replica if found.is_of_several else run)
        if not different:
            unbound = unbound or found.unbound
        elif different == {_CPUS} and _has_shares_of(record, found):
            unbound = unbound or run
        if alone and unbound:
            break
    return record.model_copy(update={"one_replica": alone, "unbound": unbound})


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
        return _bound_in_words(record)
    if not is_faster(record):
        return [f"{said}.", *_bound_in_words(record)]
    causes = "; ".join(_causes(record))
    return [
        f"{said}: here one replica trains faster.",
        *([f"Why: {causes}."] if causes else []),
        f"What to do: {_remedy(record)}.",
        *_bound_in_words(record),
    ]


def _bound_in_words(record: TrainingRecord) -> list[str]:
    """Returns in a sentence that workers lose by having cores of their own, if they do."""
    unbound, speed = record.unbound, record.figures()["examples_per_second"]
    if unbound is None or not speed or speed >= SURELY_SLOWER * unbound.examples_per_second:
        return []
    return [
        "With cores of their own the workers train "
        f"{speed / unbound.examples_per_second:.2f} times as fast as the last run without "
        f"({unbound.source}): leave distribution.cpu_binding out."
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


def _run_before(source: str, record: TrainingRecord) -> RunBefore | None:
    speed = record.figures()["examples_per_second"]
    if not speed:
        return None
    return RunBefore(source=source, examples_per_second=speed, plan=record.plan)


def _differences(record: TrainingRecord, other: TrainingRecord) -> set[str]:
    """Returns in what two runs differ; the processors of workers that have shares do not count."""
    different = set(fingerprint.differences(record.environment, other.environment))
    if len({each.key["code"] for each in (record, other) if "code" in each.key}) > 1:
        different.add("code")
    is_alone = not other.is_of_several
    return different - {_CPUS} if is_alone and _has_shares_of(record, other) else different


def _has_shares_of(record: TrainingRecord, other: TrainingRecord) -> bool:
    """Whether the workers of a training have no more CPUs together than a process of another."""
    own, others = (int(each.environment.get(_CPUS, 0)) for each in (record, other))
    return record.host_count == 1 < record.worker_count and own * record.worker_count <= others
