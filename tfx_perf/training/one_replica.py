"""What several replicas bring, held against runs before: one alone, workers without own cores."""

from collections.abc import Iterable, Iterator

from tfx_perf import fingerprint, formatting
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

    Where one replica trains faster, they say why, and what to do; where no run on one is known, how
    to have one.

    Args:
        record: of the training.
    """
    alone, account = record.one_replica, record.communication
    speedup = record.figures()["replica_speedup_ratio"]
    if alone is not None and speedup is not None:
        before = f"the last run on one replica ({alone.source})"
        said = f"The replicas train {formatting.compared_speed(speedup)} {before}"
    elif account is not None:
        bound = formatting.compared_speed(_largest_speedup(account), is_upper_bound=True)
        said = (
            f"The replicas wait for each other in {account.wait_share:.0%} of a step, and so are "
            f"{bound} one replica alone"
        )
    else:
        return _bound_in_words(record)
    if not is_faster(record):
        return [f"{said}.", *_comparison_to_make(record), *_bound_in_words(record)]
    causes = "; ".join(_causes(record))
    return [
        f"{said}: here one replica trains faster.",
        *([f"Why: {causes}."] if causes else []),
        f"What to do: {_remedy(record)}.",
        *_bound_in_words(record),
    ]


def _comparison_to_make(record: TrainingRecord) -> list[str]:
    """Returns in a sentence how to have a run to compare with, if nothing is there yet."""
    has_turns = record.strategy is not None and record.strategy.speedup is not None
    if record.one_replica is not None or has_turns:
        return []
    return [
        "No run of the same code on one replica is known to compare with: train once "
        f"{_on_one_replica(record)}; a script, in the same folder."
    ]


def _bound_in_words(record: TrainingRecord) -> list[str]:
    """Returns in a sentence that workers lose by having cores of their own, if they do."""
    unbound, speed = record.unbound, record.figures()["examples_per_second"]
    if unbound is None or not speed or speed >= SURELY_SLOWER * unbound.examples_per_second:
        return []
    return [
        "With cores of their own the workers train "
        f"{formatting.compared_speed(speed / unbound.examples_per_second)} the last run without "
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
    """Yields what makes replicas slow: what is measured, the largest share first, then the rest."""
    alone = record.one_replica
    for share, cause in sorted(_measured_causes(record), reverse=True):
        if share > _NOTABLE_SHARE:
            yield cause
    plan = None if alone is None else alone.plan
    if plan is None:
        if any(trial.plan.xla_call and trial.status == "untried" for trial in record.trials):
            yield (
                "XLA does not compile the steps of several in one computation, as it may those of "
                "one"
            )
    elif plan != record.plan:
        uncompiled = ", as XLA does not compile the steps of several in one computation"
        because = uncompiled if plan.xla_call else ""
        yield f"one trained with {plan}, and these with {record.plan}{because}"
    if record.worker_count > 1 and record.host_count == 1:
        yield "the workers share the processor of one machine"


def _measured_causes(record: TrainingRecord) -> Iterator[tuple[float, str]]:
    """Yields shares of the time of a training that replicas lose, and to what."""
    account = record.communication
    if account is None:
        return
    starts = account.epoch_start_share
    if record.one_replica is not None:  # else it is said already
        lost = account.wait_share * (1 - starts)
        yield lost, f"they wait for each other in {account.wait_share:.0%} of a step"
    share = f"{starts:.0%}"
    yield starts, f"the beginnings of epochs take {share} of the time: longer epochs have fewer"


def _remedy(record: TrainingRecord) -> str:
    if record.host_count > 1:
        return "give each replica a larger batch, or a faster network"
    return f"train {_on_one_replica(record)}"


def _on_one_replica(record: TrainingRecord) -> str:
    """Returns how one replica trains what several have trained."""
    if record.host_count > 1:
        return "in one process, without distribution.job"
    if record.worker_count > 1 or record.parameter_server_count:
        return "in one process, without distribution.workers or tfx-perf launch"
    return "on one device, e.g. with distribution.strategy: one_device"


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
