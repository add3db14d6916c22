"""The components where the pipeline's root is in an object store."""

import json
import pathlib

import pytest
from training_cases import Trainer

from tests import processes
from tfx_perf.core import errors

_CHAIN = pathlib.Path(__file__).with_name("remote_chain.py")


@pytest.mark.slow
def test_all_components_publish_and_read_there(store, tmp_path):
    scheme, environment = store
    (tmp_path / "cwd").mkdir()
    (tmp_path / "artifacts").mkdir()
    given = (_CHAIN, f"{scheme}://bucket/taxi", tmp_path / "artifacts")
    done = processes.python(*given, env=environment, cwd=tmp_path / "cwd")
    found = json.loads(processes.last_line(done))
    assert found["compared_with"] == 1
    assert found["in_ledger"] == 1 + found["blessed"]  # the machine may have become slower
    assert {"step_time_seconds", "peak_memory_bytes"} <= set(found["figures"])
    assert {
        "input_plan/plan.json", "input_plan/report.html", "input_plan/tuning.log",
        "memory_profile/profile.json", "memory_profile/report.html", "memory_profile/profile.log",
        "perf_metrics/metrics.json", "perf_metrics/report.html", "perf_metrics/job.json",
        "evaluation/evaluation.json", "evaluation/report.html",
        f"blessing/INFRA_{'' if found['blessed'] else 'NOT_'}BLESSED",
    } <= set(found["files"])  # fmt: skip
    assert found["left_behind"] == []  # no local folder `gs:`


def test_a_missing_driver_is_reported_before_the_training(tmp_path):
    trainer = Trainer(tmp_path)
    trainer.perf_metrics.uri = "abfs://bucket/metrics"
    with pytest.raises(errors.UserError, match="whose fsspec driver is installed"):
        trainer.run(module={"train": "raise AssertionError"})
