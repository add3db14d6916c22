"""The gain of several replicas: over an earlier run on one, and by formula for more workers."""

from collections.abc import Iterable, Iterator

from tfx_perf.core import cache_key, formatting
from tfx_perf.training.measuring.accounts import CommunicationAccount, RunBefore
from tfx_perf.training.record import TrainingRecord

SURELY_SLOWER = 0.9
"""Slower than this share of another run's speed: two equal runs differ by some percent."""

# Keys of `environment` that may differ between runs of one training on different replicas.
_OF_REPLICAS = {
    "strategy", "replica_count", "worker_count", "host_count", "parameter_server_count",
    "flops_per_step",
}  # fmt: skip
_NOTABLE_SHARE = 0.1  # of the time


def step_time_seconds(account: CommunicationAccount, workers: int) -> float:
    """Returns a step's time with other workers, each with its own machine and the same batch.

    A ring sends 2 (N - 1) / N of the gradients over each link, so the workers' wait for the
    transfer grows with that. The measured wait includes the messages' latency, which grows less.
    """
    transfer = account.communication_share * account.step_time_seconds
    now, then = (1 - 1 / count for count in (account.worker_count, workers))
    return account.step_time_seconds - transfer + transfer * then / now


def with_one_replica(
    record: TrainingRecord, before: Iterable[tuple[str, TrainingRecord]]
) -> TrainingRecord:
    """Returns the record with the last earlier run of the training on one replica, if any."""
    if not record.is_of_several:
        return record
    for source, earlier in before:
        if not _is_same_training(record, earlier):
            continue
        speed = earlier.figures()["examples_per_second"]
        alone = earlier.one_replica
        if not earlier.is_of_several and speed:
            alone = RunBefore(source=source, examples_per_second=speed)
        if alone:
            return record.model_copy(update={"one_replica": alone})
    return record


def _is_same_training(record: TrainingRecord, other: TrainingRecord) -> bool:
    different = set(cache_key.differences(record.environment, other.environment))
    if record.host_count == 1 < record.worker_count:  # each may have a share of its CPUs
        cpu_count, others = (int(each.environment.get("cpu_count", 0)) for each in (record, other))
        if cpu_count * record.worker_count <= others:
            different.discard("cpu_count")
    codes = {each.key["code"] for each in (record, other) if "code" in each.key}
    return different <= _OF_REPLICAS and len(codes) <= 1


def is_one_faster(record: TrainingRecord) -> bool:
    """Whether one replica surely trains faster than those of a training, as far as is known."""
    speedup = record.figures()["replica_speedup_ratio"]
    if speedup is not None:
        return speedup < SURELY_SLOWER
    return record.communication is not None and _largest_speedup(record.communication) < 1


def _largest_speedup(account: CommunicationAccount) -> float:
    """Returns how many times as fast as one alone the replicas are at most.

    Together they compute no less than one of them would alone, and it would begin as many epochs.
    """
    start, step = account.epoch_start_seconds, account.step_time_seconds
    computing = step * (1 - account.wait_share)
    return (len(account.replicas) * computing + start) / (step + start)


def sentences(record: TrainingRecord) -> list[str]:
    """Returns sentences on the gain of several replicas, and what to do if one alone is faster."""
    alone, account = record.one_replica, record.communication
    speedup = record.figures()["replica_speedup_ratio"]
    if alone is not None and speedup is not None:
        before = f"the last run on one replica ({alone.source})"
        comparison = f"The replicas train {formatting.compared_speed(speedup)} {before}"
    elif account is not None:
        bound = formatting.compared_speed(_largest_speedup(account), is_upper_bound=True)
        comparison = (
            f"The replicas wait for each other in {account.wait_share:.0%} of a step, and so are "
            f"{bound} one replica alone"
        )
    else:
        return []
    if not is_one_faster(record):
        return [f"{comparison}."]
    causes = "; ".join(_causes(record))
    apart = record.host_count > 1
    remedy = "give each replica a larger batch, or a faster network" if apart else _ALONE
    return [
        f"{comparison}: one replica is faster on this machine.",
        *([f"Why: {causes}."] if causes else []),
        f"Remedy: {remedy}.",
    ]


_ALONE = (
    "train in one process on one device, without tfx-perf launch or distribution.workers, e.g. "
    "with distribution.strategy: one_device"
)


def _causes(record: TrainingRecord) -> Iterator[str]:
    account = record.communication
    if account is not None and account.epoch_start_share > _NOTABLE_SHARE:
        share = f"{account.epoch_start_share:.0%}"
        yield f"the beginnings of epochs take {share} of the time: longer epochs have fewer"
    if account is not None and record.one_replica and account.wait_share > _NOTABLE_SHARE:
        yield f"they wait for each other in {account.wait_share:.0%} of a step"
    if record.worker_count > 1 and record.host_count == 1:
        yield "the workers share the processor of one machine"
