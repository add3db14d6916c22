"""Puts a case's candidate behind TFX's own dataset factory, as a plan does."""

import functools
import logging
import pathlib
from typing import Any

from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from tfx_perf.components.examples import parsers, sources
from tfx_perf.input import apply, candidates
from tfx_perf.input import parameters as parameters_lib
from tfx_perf.input.candidates import copy
from tfx_perf.input.proof import file_state

from .cases import Call, Case
from .examples import Split, schema_of
from .reading import Reader

_FELL_BACK = "TFXIO's default reads"


@functools.cache
def default_factory() -> Any:
    """Returns TFX's own factory."""
    return sources.default_factory([_artifact()])


def candidate_of(case: Case, split: Split) -> Any:
    """Returns the case's candidate, with what a plan made for the first call knows."""
    settings = _copied(case, split) if "copy" in case.wrappers else {}
    return candidates.make(case.candidate, parameters_lib.Parameters(**settings))


def factory_of(case: Case, candidate: Any) -> Any:
    """Returns the factory with a candidate behind it."""
    return apply.serving(
        candidate,
        default_factory(),
        memory_budget_bytes=case.memory_budget_bytes,
        parser_for=parsers.parser_for([_artifact()]),
    )


def reader(
    case: Case, call: Call, split: Split, *, factory: Any, epoch_rows: int = 0
) -> Reader:
    """Returns what reads a call's dataset."""
    return Reader(
        factory=factory,
        schema=schema_of(case),
        paths=split.paths(call.patterns),
        call=call,
        label=case.label,
        epoch_rows=epoch_rows,
    )


class Fallbacks(logging.Handler):
    """Collects why candidates did not serve, while it is entered."""

    def __enter__(self) -> list[str]:
        """Begins."""
        self._reasons: list[str] = []
        logging.getLogger(apply.__name__).addHandler(self)
        return self._reasons

    def __exit__(self, *error: object) -> None:
        """Ends."""
        logging.getLogger(apply.__name__).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Is called for each line of the log."""
        if _FELL_BACK in record.msg:
            self._reasons.append(str(record.args[-1]))


def _artifact() -> standard_artifacts.Examples:
    made = standard_artifacts.Examples()
    examples_utils.set_payload_format(made, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    return made


def _copied(case: Case, split: Split) -> dict[str, Any]:
    """Writes the copy that a plan for the first call would have."""
    above = split.folder.parent
    paths = split.paths(case.calls[0].patterns)
    patterns = [str(pathlib.Path(path).relative_to(above)) for path in paths]
    files = tuple(sorted(str(file) for pattern in patterns for file in above.glob(pattern)))
    folder = above / "copy"
    folder.mkdir()
    shards = copy.shard_paths(str(folder), 2)
    try:
        copy.write_shards((chunk for file in files for chunk in copy.read_chunks(file)), shards)
    except Exception:  # damaged: InputTuner would have written none
        return {}
    state = file_state.digest(file_state.of_files(files))
    return copy.of_files(files, files_state=state, folder=str(folder))
