"""Steps that read all of the data do so in the workers that Beam was told to start."""

import pathlib
import threading

import psutil
import pytest
from tfx import v1 as tfx

from tfx_perf.pipelines import local_runner

_DATA = pathlib.Path(__file__).parents[2] / "templates" / "perf" / "data"
_ARGUMENTS = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def _workers() -> int:
    children = psutil.Process().children(recursive=True)
    found = 0
    for child in children:
        try:
            found += "apache_beam.runners.worker.sdk_worker_main" in " ".join(child.cmdline())
        except psutil.Error:  # it has just ended
            continue
    return found


@pytest.mark.slow
def test_two_processes_share_the_work(tmp_path):
    example_gen = tfx.components.CsvExampleGen(input_base=str(_DATA))
    statistics = tfx.components.StatisticsGen(examples=example_gen.outputs["examples"])
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="workers",
        pipeline_root=str(tmp_path / "root"),
        components=[example_gen, statistics],
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(tmp_path / "metadata.sqlite")
        ),
        beam_pipeline_args=_ARGUMENTS,
    )
    seen, done = [], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            seen.append(_workers())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        local_runner.run(pipeline)
    finally:
        done.set()
        thread.join()
    assert max(seen) >= 2
    assert list((tmp_path / "root" / "StatisticsGen").rglob("FeatureStats.pb"))
