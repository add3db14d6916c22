"""`tfx-perf demo`: the whole pipeline on real data, beside TFX's Trainer, stock and hand-tuned."""

import errno
import json
import os
import pathlib
from typing import Any

import click

from tfx_perf.cli import options, terminal
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, formatting
from tfx_perf.hardware import versions

_DATABASE = "metadata.sqlite"
# Nodes of the pipeline.
_STOCK, _BY_HAND = "StockTrainer", "TrainerByHand"
_CHAIN = ("InputTuner", "MemoryProfiler", "OptimizedTrainer")
_COMPARED = (
    "examples_per_second", "step_time_seconds", "time_to_first_step_seconds", "fit_time_seconds",
    "trial_time_seconds", "compile_time_seconds", "peak_memory_bytes", "training_memory_bytes",
    "mfu_ratio", "train_loss", "validation_loss",
)  # fmt: skip


@click.command("demo")
@click.option(
    "--output", metavar="DIR", default="demo_output", show_default=True,
    help="Where everything is written; a second demo there compares itself with the first.",
)  # fmt: skip
@click.option(
    "--batch-size", "batch_sizes", metavar="N", type=options.WholeNumber(min=1), multiple=True,
    default=(40, 1024), show_default=True, help="May be repeated; one pipeline for each.",
)  # fmt: skip
@click.option(
    "--steps", metavar="N", type=options.WholeNumber(min=50), default=5000, show_default=True,
    help="Training steps.",
)  # fmt: skip
@click.option("--config", "settings_path", metavar="YAML", help="Settings of the components.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON, not as tables.")
def command(
    *,
    output: str,
    batch_sizes: tuple[int, ...],
    steps: int,
    settings_path: str | None,
    as_json: bool,
) -> None:
    """Runs the Chicago taxi pipeline with tfx-perf, and TFX's Trainer beside it.

    Data and model are those of `tfx template copy --model taxi`, unmodified. TFX's Trainer trains
    it as it is, and once more with what one does by hand: steps_per_execution=50, and examples in
    memory by cache().
    """
    if not versions.has_tfx():
        raise ImportError("no package tfx", name="tfx")  # `main` says what to do
    folder = _writable(pathlib.Path(output).absolute())
    settings = _settings(settings_path)
    summaries = []
    for batch_size in dict.fromkeys(batch_sizes):
        run_folder = _writable(folder / f"batch_{batch_size}")
        click.echo(f"Taxi pipeline at batch size {batch_size}, {steps} steps", err=True)
        summary = _run(run_folder, batch_size=batch_size, steps=steps, settings=settings)
        summaries.append(summary)
        if not as_json:
            _show(summary)
    document = {"schema": "tfx_perf.demo/1", "runs": summaries}
    path = folder / "summary.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        terminal.show_json(document)
    else:
        click.echo(f"Summary: {path}")


def _writable(folder: pathlib.Path) -> pathlib.Path:
    with errors.writing_to("output", folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return folder


def _settings(settings_path: str | None) -> PerfConfig:
    if settings_path:
        return PerfConfig.from_yaml(settings_path)
    return PerfConfig.from_dict(
        {"training": {"seed": 1}, "gate": {"rules": {"validation_loss": {"max": 0.65}}}}
    )


def _run(
    folder: pathlib.Path, *, batch_size: int, steps: int, settings: PerfConfig
) -> dict[str, Any]:
    from tfx_perf import isolate

    log_path = folder / "pipeline.log"
    arguments = {
        "folder": str(folder),
        "batch_size": batch_size,
        "train_steps": steps,
        "eval_steps": max(1, steps * 15 // 100),  # the template's proportion
        "label": f"run {_completed_runs(folder)}",
        "settings": settings.to_json(),
    }
    target = "tfx_perf.pipelines.taxi:run_in_process"
    with isolate.started(
        target, arguments, log_path=log_path, show=lambda line: click.echo(line.rstrip(), err=True)
    ) as child:
        node_seconds = child.result(timeout_seconds=1800.0)
    summary = _summary(folder, batch_size=batch_size, log_path=log_path)
    return {**summary, "node_time_seconds": node_seconds}


def _completed_runs(folder: pathlib.Path) -> int:
    from tfx_perf.mlmd import runs as recorded_runs

    database = folder / _DATABASE
    runs = recorded_runs.read_runs(database) if database.exists() else []
    return sum(run.state == "complete" for run in runs)


def _summary(folder: pathlib.Path, *, batch_size: int, log_path: pathlib.Path) -> dict[str, Any]:
    from tfx_perf.mlmd import runs as recorded_runs
    from tfx_perf.training import record as training_record

    run = recorded_runs.read_runs(folder / _DATABASE, limit=1)[0]

    def compared(path: pathlib.Path) -> dict[str, float | None]:
        figures = training_record.TrainingRecord.read(path).figures()
        return {key: figures[key] for key in _COMPARED}

    def newest_of(node: str) -> pathlib.Path:
        files = folder.glob(f"artifacts/{node}/model_run/*/stock_metrics.json")
        return max(files, key=lambda path: path.stat().st_mtime)

    path = pathlib.Path(run.folders["PerfMetrics"], training_record.FILE_NAME)
    trained = training_record.TrainingRecord.read(path)
    stock, optimized = compared(newest_of(_STOCK)), compared(path)
    return {
        "batch_size": batch_size,
        "run_id": run.run_id,
        "stock": stock,
        "by_hand": compared(newest_of(_BY_HAND)),
        "optimized": optimized,
        "ratio": {
            key: after / before if after is not None and (before := stock[key]) else None
            for key, after in optimized.items()
        },
        "plan": str(trained.plan),
        "plan_reason": trained.plan_reason,
        "input_speedup": run.metrics.get("input_speedup_ratio"),
        "verdict": {
            "blessed": run.blessed,
            "pushed": run.pushed,
            "headline": run.headline,
            "baseline_runs": int(run.metrics["baseline_run_count"]),
        },
        "environment": trained.environment,
        "reports": {
            kind: str(pathlib.Path(uri, "report.html")) for kind, uri in run.folders.items()
        },
        "metadata": str(folder / _DATABASE),
        "log": str(log_path),
    }


def wall_times(node_seconds: dict[str, float]) -> tuple[float, float, float]:
    """Returns the seconds that the stock Trainer, the hand-tuned one and the chain take."""
    chain_seconds = sum(node_seconds[name] for name in _CHAIN)
    return node_seconds[_STOCK], node_seconds[_BY_HAND], chain_seconds


def _show(summary: dict[str, Any]) -> None:
    rows = terminal.figures_table(
        f"Batch size {summary['batch_size']}", "metric", "stock Trainer", "by hand", "tfx-perf",
        "ratio to stock",
    )  # fmt: skip
    seconds = summary["node_time_seconds"]
    waits = wall_times(seconds)
    rows.add_row("wall time", *map(formatting.format_seconds, waits), f"{waits[-1] / waits[0]:.2f}")
    for key in _COMPARED:
        ratio = summary["ratio"][key]
        figures = (summary[trainer][key] for trainer in ("stock", "by_hand", "optimized"))
        values = (formatting.format_value(key, figure) for figure in figures)
        last = formatting.MISSING if ratio is None else f"{ratio:.2f}"
        rows.add_row(formatting.label(key), *values, last)
    terminal.show(rows)
    shares = " + ".join(f"{name} {formatting.format_seconds(seconds[name])}" for name in _CHAIN)
    click.echo(f"Wall time with tfx-perf: {shares}.")
    click.echo("By hand: steps_per_execution=50, and examples in memory by cache().")
    click.echo(f"Log: {summary['log']}\n")
