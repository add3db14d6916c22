"""The runs on record as the gate saw them, for judging them again."""

import logging

from tfx_perf import errors, storage
from tfx_perf.gate import history
from tfx_perf.gate.record import FILE_NAME, GateRecord
from tfx_perf.gate.run import Run

_LOGGER = logging.getLogger(__name__)


def read(source: str, *, pipeline: str | None = None, with_refused: bool = False) -> list[Run]:
    """Returns the runs, oldest first; what cannot be read is left out with a warning.

    Args:
        source: see `history.read`. A ledger has only what was blessed.
        pipeline: only this pipeline's runs; see `history.read`.
        with_refused: also the runs that the gate refused.

    Raises:
        UserError: there is nothing there, or it is damaged, or it has no such pipeline.
    """
    source = history.resolved(source)
    if not history.is_metadata(source):
        entries = history.read_ledger(source).entries
        return [run for run in entries if pipeline is None or run.pipeline in ("", pipeline)]
    runs: dict[str, Run] = {}  # several runs may have taken one from cache
    for run in reversed(history.read(source, pipeline=pipeline)):
        if run.blessed is None or not (run.blessed or with_refused):
            continue
        try:
            folder = run.folders["PerfEvaluation"]
            runs[folder] = read_one(folder)
        except (KeyError, errors.UserError) as error:
            _LOGGER.warning("The run %s is left out: %s", run.run_id, error)
    return list(runs.values())


def read_one(path: str) -> Run:
    """Returns the run that an evaluation is about.

    Args:
        path: `evaluation.json` or its folder, local or remote.

    Raises:
        UserError: it is not there, or damaged.
    """
    file = storage.path(path)
    return GateRecord.read(file if storage.is_file(file) else file / FILE_NAME).candidate
