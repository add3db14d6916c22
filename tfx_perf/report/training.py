"""OptimizedTrainer's report."""

import math
from collections.abc import Mapping, Sequence

from tfx_perf.core import formatting, metrics
from tfx_perf.report import page, plots
from tfx_perf.training import advice, scaling
from tfx_perf.training.measuring.accounts import CommunicationAccount, DevicePart, Placement
from tfx_perf.training.record import TrainingRecord, XlaAccount
from tfx_perf.training.tuning.choice import TrialRecord

TITLE = "OptimizedTrainer: how the model was trained"

_LOSSES = {"loss": "training", "val_loss": "validation"}
_MARKED_EPOCHS = 40
_TRIED = ("slower", "different")
# A plan that lost to another one may still be faster than Keras' fit.
_OUTCOMES: dict[str, str] = {"slower": "not chosen"}
_WORKER_FACTORS = (1, 2, 4, 8)  # times the workers that trained


def report_on(
    record: TrainingRecord, *, title: str = TITLE, runs_are_planned: bool = False
) -> page.Report:
    """Returns the report: replicas, charts for finding trouble, their data, and all figures."""
    is_better = not (record.plan.is_plain_fit or scaling.is_one_faster(record))
    first, *more = _first_lines(record, runs_are_planned=runs_are_planned)
    report = page.Report(
        title=title, verdict=first, more=more, tone="good" if is_better else "neutral"
    )
    if record.reused_from:
        report.add_text(
            "From cache",
            note="There were no trials: the code, the schema, the input plan, the settings, the "
            f"host and the versions are those of an earlier run, {record.reused_from}. The "
            "trials below are from that run.",
        )
    if record.communication:
        _add_replicas(report, record.communication)
    _add_losses(report, record)
    timed = [trial for trial in record.trials if trial.step_time]
    if any(trial.speedup for trial in timed):  # the few steps of a check are not enough
        _add_plans(report, record, timed)
    report.add_table(
        "Advice",
        columns=["about", "what was measured, and what to do"],
        rows=[(item.code.replace("_", " "), item.message) for item in record.advice],
    )
    if record.step_times:
        _add_steps(report, record)
    if record.memory_series:
        _add_memory(report, record)
    runs = record.enough_runs
    enough = f" Untried plans may pay with schedule.expected_runs: {runs}." if runs else ""
    report.add_table(
        "Trials",
        columns=["plan", "outcome", "why", "loss in the check", "trace and compile"],
        rows=[
            (
                str(trial.plan),
                _OUTCOMES.get(trial.status, trial.status),
                trial.reason,
                formatting.MISSING if trial.loss is None else f"{trial.loss:.6g}",
                formatting.format_seconds(trial.compile_time_seconds),
            )
            for trial in record.trials
        ],
        note="Every plan first trains the same steps from the same weights and must produce "
        "those of Keras' fit, up to rounding, which a long training may amplify; with "
        f"training.excluded_speedups: [inexact], bit for bit.{enough}",
    )
    _add_start(report, record)
    if record.placement:
        _add_placement(report, record.placement)
    if record.xla:
        _add_xla(report, record.xla)
    figures = record.figures()
    missing = ", ".join(formatting.label(key) for key, value in figures.items() if value is None)
    report.add_table(
        "Figures",
        columns=["metric", "value", "what it is"],
        rows=[
            (
                formatting.label(key),
                formatting.format_value(key, value),
                metrics.CATALOGUE[key].description,
            )
            for key, value in figures.items()
            if value is not None
        ],
        note=f"Peak FLOP/s: {record.peak_source or 'unknown'}."
        + (f" Energy: {record.energy_gap}." if record.energy_gap else "")
        + (f" Without a value: {missing}." if missing else ""),
    )
    report.add_table(
        "Notes",
        columns=["what happened on the way, and what could not be measured"],
        rows=[(note,) for note in record.notes],
    )
    report.add_table(
        "Environment",
        columns=["what", "value"],
        rows=list(record.environment.items()),
        note="Runs are compared only if these values match; model sizes may differ slightly.",
    )
    return report


def _add_replicas(report: page.Report, account: CommunicationAccount) -> None:
    """Adds how long replicas wait for each other, and what more workers would gain."""
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
    if account.worker_count > 1:
        _add_more_workers(report, account)


def _add_more_workers(report: page.Report, account: CommunicationAccount) -> None:
    one_seconds = scaling.step_time_seconds(account, 1)
    rows = []
    for count in (account.worker_count * factor for factor in _WORKER_FACTORS):
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


def _add_losses(report: page.Report, record: TrainingRecord) -> None:
    """Adds the loss of every epoch; a table if there was only one epoch."""
    losses = {name: values for name, values in record.losses.items() if values}
    drawn = {name: values for name, values in losses.items() if name in _LOSSES}
    epochs = max(map(len, losses.values()), default=0)
    if epochs > 1 and drawn:
        report.add_figure(
            "Loss",
            svg=lambda: plots.lines(
                {
                    _LOSSES[name]: (_epochs(len(values), epochs), values)
                    for name, values in drawn.items()
                },
                xlabel="epoch",
                ylabel="loss",
                markers=epochs <= _MARKED_EPOCHS,
                from_zero=False,
            ),
            note=_loss_note(drawn, epochs),
        )
    others = losses if epochs == 1 else {name: losses[name] for name in losses.keys() - drawn}
    report.add_table(
        "Loss" if epochs == 1 else "Other losses",
        columns=["loss", "after the only epoch" if epochs == 1 else "after the last epoch"],
        rows=[
            (_LOSSES.get(name, name), formatting.format_value("train_loss", values[-1]))
            for name, values in sorted(others.items())
        ],
    )


def _epochs(count: int, epochs: int) -> list[float]:
    """Returns the x values for a loss, evenly spaced if Keras does not say when it validated."""
    if count == epochs:
        return list(range(1, epochs + 1))
    return [epochs * (index + 1) / count for index in range(count)]


def _loss_note(drawn: Mapping[str, Sequence[float]], epochs: int) -> str:
    sentences = []
    for name, values in drawn.items():
        if len(values) != epochs:
            sentences.append(
                f"The {_LOSSES[name]} loss is known {len(values)} times in {epochs} epochs, and "
                "is drawn at even distances."
            )
        broken = next((at for at, value in enumerate(values, 1) if not math.isfinite(value)), None)
        if broken:
            sentences.append(f"Value {broken} of the {_LOSSES[name]} loss is {values[broken - 1]}.")
    return " ".join(sentences)


def _add_plans(report: page.Report, record: TrainingRecord, timed: Sequence[TrialRecord]) -> None:
    report.add_figure(
        "Step time of the plans",
        svg=lambda: plots.interval_bars(
            [(str(trial.plan), trial.step_time.scaled(1e3)) for trial in timed if trial.step_time],
            xlabel="milliseconds per step, median and 95% interval",
            highlight=str(record.plan),
        ),
        note="Blocks of steps on the real model and data, interleaved plan by plan.",
    )


def _add_steps(report: page.Report, record: TrainingRecord) -> None:
    done, times = zip(*record.step_times, strict=True)
    report.add_figure(
        "Steps",
        svg=lambda: plots.lines(
            {"step time": (done, [seconds * 1e3 for seconds in times])},
            xlabel="steps done",
            ylabel="milliseconds per step",
            log_scale=True,
        ),
        note="One point for each call of the train function. The first holds tracing and "
        "compiling, unless trials in the same process have done them.",
    )


def _add_memory(report: page.Report, record: TrainingRecord) -> None:
    seconds, sizes = zip(*record.memory_series, strict=True)
    growth = record.memory_growth
    note = "The training was too short, or its input caches too much, to tell whether memory leaks."
    if growth:
        rate = growth.bytes_per_step
        value, low, high = map(formatting.format_bytes, (rate.value, rate.low, rate.high))
        note = (
            f"In the last {formatting.format_seconds(growth.seconds)} it grew by {value} a step "
            f"(95% interval {low} to {high}): "
            f"{'a leak, or what looks like one' if growth.is_leak else 'no leak'}."
        )
    report.add_figure(
        "Memory",
        svg=lambda: plots.lines(
            {"host memory": (seconds, [size / 2**20 for size in sizes])},
            xlabel="seconds since the first steps",
            ylabel="MiB",
        ),
        note=note,
    )


def _add_start(report: page.Report, record: TrainingRecord) -> None:
    known = record.trial_import_seconds or 0.0, record.trial_setup_seconds or 0.0
    parts = {
        "trials: start of their process, imports": record.trial_import_seconds,
        "trials: your code, up to fit": record.trial_setup_seconds,
        "trials: checks and timing": (record.trial_time_seconds - sum(known)) or None,
        "your code, up to fit": record.setup_time_seconds,
        "tracing": record.trace_time_seconds,
        "tracing and compiling, as a whole": record.compile_time_seconds,
        "loading the first batch, from warm caches": record.first_batch_seconds,
    }
    report.add_table(
        "Start-up time",
        columns=["what", "time"],
        rows=[
            (what, formatting.format_seconds(seconds))
            for what, seconds in parts.items()
            if seconds is not None
        ],
    )


def _add_placement(report: page.Report, placement: Placement) -> None:
    crossing = placement.crossing_bytes_per_step
    report.add_table(
        "Layers on devices",
        columns=["device", "layers", "weights", "training in total", "available"],
        rows=[
            (part.device, _placed(part), *map(formatting.format_bytes, sizes))
            for part in placement.parts
            for sizes in [(part.weight_bytes, part.placed_bytes, part.capacity_bytes)]
        ],
        note="The devices compute one after the other. Beside weights, training needs "
        "memory for gradients, optimizer state and the outputs of layers. "
        + (
            "Transfers between devices are unknown for a subclassed model."
            if crossing is None
            else f"In a step {formatting.format_bytes(crossing)} cross between devices."
        ),
    )


def _placed(part: DevicePart) -> str:
    """Returns the content of a device: whole layers, and rows of embeddings."""
    rows = [f"{count:,} rows of {name}" for name, count in part.table_rows.items()]
    return ", ".join([*part.layers, *rows]) or "none"


def _add_xla(report: page.Report, account: XlaAccount) -> None:
    title, note = "What XLA compiled", "A batch of another shape is compiled again."
    if account.compiled_shapes is None:
        untold = "Keras does not report which shapes its own step was compiled for."
        report.add_text(title, note=f"{note} {untold}")
        return
    report.add_table(
        title,
        columns=["program", "shapes of its inputs"],
        rows=[(str(index), shapes) for index, shapes in enumerate(account.compiled_shapes, 1)],
        note=note,
    )


def _first_lines(record: TrainingRecord, *, runs_are_planned: bool) -> list[str]:
    again = ", as in an earlier run" if record.reused_from else ""
    where = f" on {record.trained_on}" if record.trained_on else ""
    lines = [f"Trained with {record.trained_with}{where}{again}: {record.plan_reason}."]
    # A plan that was chosen without a trial was not timed.
    has_tried = any(
        trial.status in _TRIED or (trial.status == "chosen" and trial.step_time)
        for trial in record.trials
    )
    cost = formatting.cost_sentence(
        "The trials" if has_tried else "Finding that out",
        cost_seconds=record.trial_time_seconds,
        saved_seconds=record.plan_saving_seconds,
        run_count=record.expected_runs,
        is_planned=runs_are_planned,
    )
    if cost:
        lines.append(cost)
    speed = record.figures()["examples_per_second"]
    if speed is not None:
        shown = formatting.format_value("examples_per_second", speed).removesuffix("/s")
        lines.append(f"{shown} examples/s after warm-up.")
    lines += advice.reasons_for_own(record)
    lines += scaling.sentences(record)
    if record.strategy:
        lines.append(f"Strategy {record.strategy.name}: {record.strategy.reason}.")
    return [*lines, *record.warnings]
