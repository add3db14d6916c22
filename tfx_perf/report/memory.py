"""MemoryProfiler's report."""

from tfx_perf.core import formatting
from tfx_perf.memory.record import ProfileRecord, StepMemory
from tfx_perf.report import page, plots

TITLE = "MemoryProfiler: where a step's memory goes"

_FOOTPRINT_NOTES = {
    True: "The growth of the resident set over the first steps of fit, as the module trains, with "
    "memory outside the allocator and memory left by smaller batches. The input pipeline, "
    "callbacks and validation come on top.",
    False: "The allocator's peak over the first steps of fit, as the module trains.",
}
_PREDICTED = "predicted without XLA"
_PLANS: dict[str | None, str] = {"plain": "without XLA", "xla": "with XLA"}
_ENDINGS = {
    "failed": "failed",
    "out of memory": "ran out of memory",
    "killed": "was killed",
    "timed out": "took too long",
    "not run": "was not run",
}


def report_on(record: ProfileRecord) -> page.Report:
    """Returns the report on a profile: the peak, its parts, its growth."""
    report = page.Report(title=TITLE, verdict=_verdict(record))
    measured = [step for step in record.steps if step.peak_bytes is not None]
    if measured:
        largest_bytes = max(step.peak_bytes or 0 for step in measured)
        scale, unit = (2**20, "MiB") if largest_bytes >= 2**20 else (2**10, "KiB")
        peaks = {
            _name(step): {part: size / scale for part, size in record.parts(step).items()}
            for step in measured
        }
        report.add_figure(
            "Memory at the peak of a training step",
            svg=lambda: plots.stacked_bars(peaks, xlabel=f"{unit} on {record.device}"),
            note="Without XLA: the allocator's peak over real steps of Keras' fit; the last part "
            "is the peak less the others, so that the optimizer's and the kernels' scratch is in "
            "it. "
            "With XLA: the compiler's buffer assignment, not run; gradients are among its "
            "temporaries.",
        )
        report.add_figure(
            "Growth with the batch",
            svg=lambda: plots.lines(
                _growth(record, measured, scale=scale),
                xlabel="batch size",
                ylabel=f"peak, {unit}",
                markers=True,
                predicted=_PREDICTED,
            ),
            note=_growth_note(record),
        )
    if record.footprints:  # otherwise it is unknown which plan the module trains with
        report.add_table(
            "Memory of training",
            columns=["batch size", "ended", "took", "remark"],
            rows=[
                (f"{item.batch_size:,}", item.status, formatting.format_bytes(item.taken_bytes),
                 item.reason)
                for item in record.footprints
            ],
            note=_FOOTPRINT_NOTES[record.device.startswith("CPU")]
            + f" The module trains {_PLANS[record.trained_plan]}; a plan of OptimizedTrainer can "
            "take more or less.",
        )  # fmt: skip
    report.add_table(
        "Advice",
        columns=["about", "what was measured, and what to do"],
        rows=[(item.code, item.message) for item in record.advice],
    )
    report.add_table(
        "Every batch size",
        columns=["step", "ended", "peak", "varies by", "input batch", "temporaries", "remark"],
        rows=[_row(step) for step in record.steps],
        note="Varies by: the difference between rounds, in which TensorFlow runs independent "
        "operations in different orders. Temporaries: XLA's own figure.",
    )
    report.add_table(
        "Independent of the batch size",
        columns=["what", "value"],
        rows=[
            ("weights", formatting.format_bytes(record.state.weights_bytes)),
            ("optimizer state", formatting.format_bytes(record.state.optimizer_state_bytes)),
            ("gradients", formatting.format_bytes(record.state.gradients_bytes)),
            ("module's batch size", f"{record.module_batch_size:,}"),
            (
                f"fragmentation at the peak of batch {record.module_batch_size:,}",
                formatting.format_value("fragmentation_ratio", record.fragmentation_ratio)
                if record.fragmentation_ratio is not None
                else f"not measured: {record.fragmentation_gap or 'the step did not fit'}",
            ),
            ("memory limit", formatting.format_bytes(record.memory_limit_bytes)),
            ("limit is", record.limit_source),
            ("Keras package", record.keras),
            ("replicas", str(record.replica_count)),
        ],
    )
    return report


def _verdict(record: ProfileRecord) -> str:
    plain = record.step("plain", record.module_batch_size)
    xla = record.step("xla", record.module_batch_size)
    peaks = [
        f"{formatting.format_bytes(step.peak_bytes)} {_PLANS[step.plan]}"
        for step in (plain, xla)
        if step.peak_bytes is not None
    ]
    needs = f"needs {' and '.join(peaks)}" if peaks else "could not be measured"
    sentences = [f"A training step at batch size {record.module_batch_size} {needs}."]
    cut_off = [
        f"batch {size:,} {_ENDINGS[status]}"
        for size, status in record.endings.items()
        if status != "measured"
    ]
    if cut_off:
        sentences.append(f"Without figures: {', '.join(cut_off)}.")
    return " ".join([*sentences, _largest(record)])


def _largest(record: ProfileRecord) -> str:
    limit = f"{formatting.format_bytes(record.memory_limit_bytes)} ({record.limit_source})"
    if record.largest_batch_size is None:
        why = record.largest_remark or record.reason
        return f"The largest batch that fits {limit} is not known: {why}."
    if not record.largest_remark:  # an older record, without footprints
        return (
            f"Batches up to {record.largest_batch_size:,} should fit {limit}, estimated "
            "from a straight line through the allocator's peaks without XLA."
        )
    claim = "at least" if record.largest_is_lower_bound else "about"
    return (
        f"Batches up to {claim} {record.largest_batch_size:,} fit {limit}, trained "
        f"{_PLANS[record.trained_plan]}: {record.largest_remark}."
    )


def _growth_note(record: ProfileRecord) -> str:
    line = record.prediction
    if line is None:
        return f"The growth is not known: {record.reason}."
    return (
        "Without XLA, each further example takes "
        f"{formatting.format_bytes(line.bytes_per_example)} of the allocator; the line misses a "
        f"measured peak by {line.deviation_ratio:.1%} at most."
    )


def _growth(
    record: ProfileRecord, measured: list[StepMemory], *, scale: int
) -> dict[str, tuple[list[float], list[float]]]:
    series: dict[str, tuple[list[float], list[float]]] = {}
    for step in sorted(measured, key=lambda step: (step.plan, step.batch_size)):
        sizes, peaks = series.setdefault(_PLANS[step.plan], ([], []))
        sizes.append(step.batch_size)
        peaks.append((step.peak_bytes or 0) / scale)
    if record.prediction:
        ends = [0, 1.5 * max(step.batch_size for step in measured)]
        series[_PREDICTED] = ends, [record.prediction.bytes_at(size) / scale for size in ends]
    return series


def _row(step: StepMemory) -> tuple[str, ...]:
    sizes = step.peak_bytes, step.scatter_bytes, step.input_batch_bytes, step.temp_bytes
    return _name(step), step.status, *map(formatting.format_bytes, sizes), step.reason


def _name(step: StepMemory) -> str:
    return f"batch {step.batch_size}, {_PLANS[step.plan]}"
