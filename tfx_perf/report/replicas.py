"""What several replicas wait for each other, and what more of them would bring."""

from tfx_perf import formatting
from tfx_perf.report import page, plots
from tfx_perf.training.measuring.accounts import CommunicationAccount
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.scaling import Scaling

_MOST_DOUBLINGS = 10  # of the workers
_QUOTED_COUNTS = (1, 2, 8, 64, 1024)


def add_to(report: page.Report, record: TrainingRecord) -> None:
    """Adds both to OptimizedTrainer's report.

    Args:
        report: the report.
        record: of the training; if nothing was measured of its replicas, nothing is added.
    """
    account = record.communication
    if account is None:
        return
    _add_replicas(report, account)
    scaling = Scaling.of(account)
    if scaling is not None:
        _add_more_workers(report, scaling)
        _add_cost(report, record, account=account, scaling=scaling)


def _add_replicas(report: page.Report, account: CommunicationAccount) -> None:
    """Adds what each replica waited for the others."""
    step_time, start = account.step_time_seconds, account.epoch_start_seconds
    mean = formatting.format_seconds(step_time + start)
    begun = (
        f" The beginnings of epochs take {formatting.format_seconds(start)} more, spread over all "
        f"steps: a step takes {mean} on average."
        if start
        else ""
    )
    lack = (
        " What more workers would bring is not predicted: reductions between these took no "
        "longer than one of nothing, within the noise of their timing. A run on a machine that "
        "does nothing else may tell."
        if account.network_is_in_noise
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
        f"the slowest ({account.load_imbalance:.0%}). All else counts as computing.{begun}{lack}",
    )


def _add_more_workers(report: page.Report, scaling: Scaling) -> None:
    """Adds what more workers would bring and cost."""
    counts = [2**power for power in range(_MOST_DOUBLINGS + 1)]
    report.add_figure(
        "More workers",
        svg=plots.lines(
            {"": (counts, [scaling.efficiency(count) for count in counts])},
            xlabel="workers, each with the batch that it has now",
            ylabel="speed of each, over that of one alone",
            doubling=True,
            predicted="",
        ),
        note="A prediction for steps within an epoch, by the ring algorithm, if each worker has a "
        "machine of its own, and alone takes what it computes now, with the same plan. Measured "
        "between these workers: "
        f"{formatting.format_seconds(scaling.network.latency_seconds)} for a message, "
        f"{formatting.format_bytes(scaling.network.bytes_per_second)} a second.",
    )


def _add_cost(
    report: page.Report, record: TrainingRecord, *, account: CommunicationAccount, scaling: Scaling
) -> None:
    """Adds the same in figures, held also against what one replica takes alone, if it is known."""
    alone, speedup = record.one_replica, record.figures()["replica_speedup_ratio"]
    columns = ["workers", "step time", "speed of each", "speed of all", "million examples cost"]
    rows = [
        [
            f"{count:,}",
            formatting.format_seconds(scaling.step_time_seconds(count)),
            f"{scaling.efficiency(count):.0%}",
            f"{count * scaling.efficiency(count):,.1f} times",
            f"{1 / scaling.efficiency(count):.2f} times",
        ]
        for count in _QUOTED_COUNTS
    ]
    note = (
        "Speed and cost are held against those of one of these workers, which trains with "
        f"{record.plan}. One device alone may have a faster plan"
    )
    if alone is None or speedup is None:
        note += ": a run on it before this one adds a column that holds all workers against it."
    else:
        columns.append("all, over one replica's run")
        for row, count in zip(rows, _QUOTED_COUNTS, strict=True):
            ratio = speedup * scaling.speed_ratio(count, account=account)
            # One has nobody to begin an epoch with: its run is what the others are held against.
            row.append(f"{ratio:,.2f} times" if count > 1 else formatting.MISSING)
        with_plan = f", with {alone.plan}" if alone.plan else ""
        note += (
            f": the last column holds all workers against the last run on one replica "
            f"({alone.source}{with_plan}), with the beginnings of epochs as they were."
        )
    report.add_table(
        "What more workers cost",
        columns=columns,
        rows=[tuple(row) for row in rows],
        note=f"{note} With gate.price_per_hour in the settings PerfEvaluator says what a million "
        "examples have cost in this training.",
    )
