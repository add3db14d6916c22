"""Measures one cell, in a process of its own."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from benchmarks.input import examples, layout, pipelines, results, user_code
from benchmarks.input.workloads import WORKLOADS, workload
from tfx_perf.components import examples as examples_lib
from tfx_perf.config import InputSettings
from tfx_perf.input import apply, candidates, measure, tuner
from tfx_perf.input import record as record_lib

# Always measured, so not measured again if InputTuner chooses one of them.
_SAME_AS = (results.DEFAULT, results.BLOCK_READER)


def run(
    cell: Mapping[str, Any],
    *,
    data_folder: str,
    rounds: int,
    tuning_seconds: float | None,
    max_rows: int | None,
) -> dict[str, Any]:
    """Tunes, measures all pipelines in turns, and returns a `CellResult` as JSON values.

    Args:
        cell: a `results.Cell` as JSON values.
        data_folder: where record files are kept.
        rounds: samples of each pipeline.
        tuning_seconds: InputTuner's time budget; None: 40 seconds, or its default of 60 for a
            million rows or more.
        max_rows: limit on the workload's rows; None for all.

    Raises:
        UserError: the workload's data are not on this machine.
    """
    job = _Job(
        results.Cell.model_validate(cell), data_folder=pathlib.Path(data_folder), max_rows=max_rows
    )
    plan = tuner.tune(
        job.source,
        settings=InputSettings(
            tuning_seconds=tuning_seconds or _budget_seconds(job.files.row_count())
        ),
        train=job.code,
    )
    _warm_up(job.source.files)
    rates = _measured(job.datasets(plan), job.code, rounds=rounds)
    if results.TUNED not in rates:
        rates[results.TUNED] = rates[plan.chosen]
    return results.CellResult(
        cell=job.cell,
        batch_size=job.code.batch_size,
        row_count=job.files.row_count(),
        data_bytes=job.files.total_bytes(),
        chosen=plan.chosen,
        reason=plan.reason,
        dropped={item.name: item.reason for item in plan.outcomes if item.status == "dropped"},
        tuning_seconds=plan.tuning_time_seconds,
        resident_bytes=plan.outcome(plan.chosen).resident_bytes,
        examples_per_second=rates,
        ratios=results.ratios_of(rates),
    ).model_dump(mode="json")


def _budget_seconds(row_count: int) -> float:
    return 60.0 if row_count >= 1_000_000 else 40.0


class _Job:
    """The data and the user's code of a cell."""

    def __init__(
        self, cell: results.Cell, *, data_folder: pathlib.Path, max_rows: int | None
    ) -> None:
        self.cell = cell
        self._workload = WORKLOADS[cell.workload]
        self.files = layout.Layouts(self._workload, data_folder, max_rows=max_rows)
        self._examples = [
            examples.artifact_of(
                self.files.examples_uri(shards=cell.shards, compression=cell.compression)
            )
        ]
        self.source = examples_lib.record_source(
            self._examples,
            split=layout.SPLIT,
            schema=self.files.schema(),
            batch_size=self._workload.batch_size,
            label_key=workload.LABEL_KEY,
        )
        self.code = user_code.UserCode(self._workload, self.source, consumer=cell.consumer)

    def datasets(self, plan: record_lib.TuningRecord) -> dict[str, tf.data.Dataset]:
        """Returns the pipelines to compare; ours are built as OptimizedTrainer builds them."""
        source, decode, code = self.source, self._workload.decode, self.code
        block_reader = apply.serving(
            candidates.make(results.BLOCK_READER),
            source.default_factory,
            memory_budget_bytes=None,
            parser_for=examples_lib.parser_for(self._examples),
        )
        datasets = {
            results.DEFAULT: code.dataset(source.default_factory),
            results.GUIDE: pipelines.guide(source, decode),
            results.SERIAL: pipelines.serial(source, decode),
            results.BLOCK_READER: code.dataset(block_reader),
        }
        if plan.chosen not in _SAME_AS:
            tuned = apply.tuned_factory(
                source.default_factory, plan, parser_for=examples_lib.parser_for(self._examples)
            )
            datasets[results.TUNED] = code.dataset(tuned)
        if self.cell.consumer == results.NO_MODEL:
            datasets[results.GUIDE_CACHED] = self._filled(
                pipelines.guide(source, decode, cached=True)
            )
        else:
            datasets[results.REPEATED] = code.repeated_batch()
        return datasets

    def _filled(self, cached: tf.data.Dataset) -> tf.data.Dataset:
        """Reads an epoch, after which a cache is complete; later iterators share it."""
        measure.take_only(cached)(self.files.row_count() // self.code.batch_size + 1)
        return cached


def _warm_up(files: tuple[str, ...]) -> None:
    """Reads the files once, so that each input pipeline finds them in memory."""
    for name in files:
        with open(name, "rb") as file:
            while file.read(2**24):
                pass


def _measured(
    datasets: dict[str, tf.data.Dataset], code: user_code.UserCode, *, rounds: int
) -> dict[str, tuple[float, ...]]:
    samples = measure.measure(
        {name: measure.TimedDataset(dataset, code.consume) for name, dataset in datasets.items()},
        batch_size=code.batch_size,
        deadline_seconds=math.inf,
        max_rounds=rounds,
    )
    return {name: tuple(measure.rates(own)) for name, own in samples.items()}
