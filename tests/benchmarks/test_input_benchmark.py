"""The input benchmark end to end on a tiny grid, and its verdicts on targets."""

import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks.input import layout, results, run, targets
from benchmarks.input.workloads import WORKLOADS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_cell_end_to_end(tmp_path):
    command = [
        sys.executable, "-m", "benchmarks.input", "--quick", "--workloads", "text-ragged",
        "--shards", "12", "--compressions", "gzip", "--consumers", "small",
        "--data", str(tmp_path), "--tuning-seconds", "4",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "text-ragged 12 gzip small" in done.stdout
    assert "PASS" in done.stdout or "FAIL" in done.stdout

    record = results.BenchmarkRecord.read(tmp_path / "input_benchmark.json")
    assert not record.gaps
    (found,) = record.cells
    assert found.row_count == 3000
    assert set(found.examples_per_second) >= {"default", "guide", "serial", "tuned", "repeated"}
    assert {len(rates) for rates in found.examples_per_second.values()} == {3}
    assert found.ratio("tuned", "guide").low > 0
    assert found.ratio("tuned", "repeated").low > 0
    assert (tmp_path / "input_benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_layouts_hold_the_same_records(tmp_path):
    files = layout.Layouts(WORKLOADS["flights"], tmp_path, max_rows=100)

    def records(shards, compression):
        paths = tf.io.gfile.glob(
            f"{files.examples_uri(shards=shards, compression=compression)}/Split-train/*"
        )
        assert len(paths) == shards
        kind = "GZIP" if compression == "gzip" else ""
        return list(tf.data.TFRecordDataset(sorted(paths), kind).as_numpy_iterator())

    everything = records(1, "plain")
    assert len(everything) == files.row_count() == 100
    assert len(set(everything)) == 100
    assert sum(map(len, everything)) == files.total_bytes()
    assert records(12, "gzip") == records(64, "plain") == everything


def cell(workload, consumer, rates):
    rates = {name: (rate,) for name, rate in rates.items()}
    return results.CellResult(
        cell=results.Cell(workload=workload, shards=1, compression="gzip", consumer=consumer),
        batch_size=1, row_count=1, data_bytes=1, chosen="columns", reason="", dropped={},
        tuning_seconds=1, resident_bytes=None, examples_per_second=rates,
        ratios=results.ratios_of(rates),
    )  # fmt: skip


def test_targets_follow_the_figures():
    taxi = cell("taxi", "none", {"default": 1, "guide": 9, "block_reader": 7.9, "tuned": 26})
    text = cell("text-sparse", "small", {"default": 1, "repeated": 1, "tuned": 0.95})
    met = [verdict.met for verdict in targets.verdicts([taxi, text])]
    assert met == [True, False, False, False, True]
    assert [verdict.met for verdict in targets.verdicts([])] == [None] * 5


def test_cells_measured_before_are_kept_unless_measured_again():
    def record(*cells):
        return results.BenchmarkRecord(
            host="a machine", versions={}, rounds=1, tuning_seconds=1, max_rows=None,
            cells=cells, gaps=(), verdicts=(), seconds=1,
        )  # fmt: skip

    rates = {"default": 1, "tuned": 2}
    before = record(cell("flights", "none", rates), cell("taxi", "none", rates))
    again = cell("taxi", "none", {"default": 1, "tuned": 3})
    now = record(cell("taxi", "small", rates), again)
    found = run.joined(before, now)
    assert [str(result.cell) for result in found.cells] == [
        "taxi 1 gzip none", "taxi 1 gzip small", "flights 1 gzip none",
    ]  # fmt: skip
    assert found.cells[0] == again
    assert found.seconds == 2
