"""What several replicas bring, held against one that trains alone."""

from collections.abc import Iterable

from tfx_perf.training.measuring.accounts import OneReplica
from tfx_perf.training.record import TrainingRecord

# What may differ beside the number of replicas: how they train together, and what they count.
_OF_REPLICAS = {
    "strategy", "replica_count", "worker_count", "host_count", "parameter_server_count",
    "flops_per_step",
}  # fmt: skip
_SURELY_SLOWER = 0.9  # times the speed of another run: two of the same differ by some percent


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
            return OneReplica(source=source, examples_per_second=speed)
    return None


def in_words(record: TrainingRecord) -> str:
    """Returns what the replicas of a training bring, in sentences; empty if nobody knows.

    What they compute together is no less than what one of them would compute alone. So they are as
    many times as fast as one, at the most, as there are that compute at a time.

    Args:
        record: of the training.
    """
    said = []
    alone, speed = record.one_replica, record.figures()["examples_per_second"]
    if alone and speed:
        ratio = speed / alone.examples_per_second
        verdict = ": here one trains faster alone" if ratio < _SURELY_SLOWER else ""
        said.append(
            f"That is {ratio:.2f} times the speed of one replica alone ({alone.source}){verdict}."
        )
    account = record.communication
    if account and not said:
        most = len(account.replicas) * (1 - account.wait_share)
        said.append(
            f"The replicas wait for each other in {account.wait_share:.0%} of a step, and so are "
            f"at most {most:.1f} times as fast as one."
        )
    return " ".join(said)


def _is_same(record: TrainingRecord, other: TrainingRecord) -> bool:
    one, two = (
        {field: value for field, value in each.environment.items() if field not in _OF_REPLICAS}
        for each in (record, other)
    )
    codes = {each.key["code"] for each in (record, other) if "code" in each.key}
    return one == two and len(codes) <= 1
