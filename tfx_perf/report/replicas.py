"""What several replicas wait for each other, and what more workers would bring."""

from tfx_perf import formatting
from tfx_perf.report import page
from tfx_perf.training import scaling
from tfx_perf.training.measuring.accounts import CommunicationAccount
from tfx_perf.training.record import TrainingRecord

_FACTORS = (2, 4, 8)  # times the workers that trained


def add_to(report: page.Report, record: TrainingRecord) -> None:
    """Adds both to OptimizedTrainer's report, where something was measured of its replicas."""
    account = record.communication
    if account is None:
        return
    _add_replicas(report, account)
    if account.worker_count > 1:
        _add_more_workers(report, account)


def _add_replicas(report: page.Report, account: CommunicationAccount) -> None:
    step_time, start = account.step_time_seconds, account.epoch_start_seconds
    mean = formatting.format_seconds(step_time + start)
    begun = (
        f" The beginnings of epochs take {formatting.format_seconds(start)} more, spread over all "
        f"steps: a step takes {mean} on average."
        if start
        else ""
    )
    report.add_table(
        "Replicas",
        columns=["replica", "worker", "computes", "waits", "worker's peak memory"],
        rows=[
            (
                f"{index}, the slowest" if index == account.slowest else str(index),
                str(each.worker),
                formatting.format_seconds(max(0.0, step_time - each.wait_time_seconds)),
                formatting.format_seconds(each.wait_time_seconds),
                formatting.format_value("peak_memory_bytes", each.peak_memory_bytes),
            )
            for index, each in enumerate(account.replicas)
        ],
        note=f"Of a step within an epoch, {formatting.format_seconds(step_time)} on average. A "
        "replica waits from its own gradients to their sum over all: for the transfer "
        f"({account.communication_share:.0%} of a step, that of the one that waits least) and for "
        f"the slowest ({account.load_imbalance:.0%}). All else counts as computing.{begun}",
    )


def _add_more_workers(report: page.Report, account: CommunicationAccount) -> None:
    one_seconds = scaling.step_time_seconds(account, 1)
    rows = []
    for count in (account.worker_count * factor for factor in (1, *_FACTORS)):
        seconds = scaling.step_time_seconds(account, count)
        speed = f"{count * one_seconds / seconds:.1f} times"
        rows.append((str(count), formatting.format_seconds(seconds), speed))
    report.add_table(
        "More workers",
        columns=["workers", "step time", "speed of all, over one of them alone"],
        rows=rows,
        note="The first row is measured, the others are predicted: each worker with a machine of "
        "its own and the batch that it has now, gradients summed in a ring, no slower network.",
    )
