"""The runs on record as the gate saw them, for judging them again."""

import logging
import pathlib

from tfx_perf import errors
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
    if not history.is_metadata(source):
        entries = history.read_ledger(source).entries
        return [run for run in entries if pipeline is None or run.pipeline in ("", pipeline)]
    runs: dict[pathlib.Path, Run] = {}  # several runs may have taken one from cache
    for run in reversed(history.read(source, pipeline=pipeline)):
        if run.blessed is None or not (run.blessed or with_refused):
            continue
        try:
            path = pathlib.Path(run.folders["PerfEvaluation"], FILE_NAME)
            runs[path] = GateRecord.read(path).candidate
        except (KeyError, errors.UserError) as error:
            _LOGGER.warning("The run %s is left out: %s", run.run_id, error)
    return list(runs.values())
