"""Puts a case's candidate behind TFX's own dataset factory, as a plan does."""

import functools
import logging
from typing import Any

from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from tfx_perf.components import examples as examples_lib
from tfx_perf.input import apply

from .cases import Call, Case
from .examples import Split, schema_of
from .reading import Reader

_FELL_BACK = "TFXIO's default reads"


@functools.cache
def default_factory() -> Any:
    return examples_lib.default_factory([_artifact()])


def factory_of(case: Case, candidate: Any) -> Any:
    return apply.serving(
        candidate,
        default_factory(),
        memory_budget_bytes=case.memory_budget_bytes,
        parser_for=examples_lib.parser_for([_artifact()]),
    )


def reader(case: Case, call: Call, split: Split, *, factory: Any, epoch_rows: int = 0) -> Reader:
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
        self._reasons: list[str] = []
        logging.getLogger(apply.__name__).addHandler(self)
        return self._reasons

    def __exit__(self, *error: object) -> None:
        logging.getLogger(apply.__name__).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if _FELL_BACK in record.msg:
            self._reasons.append(str(record.args[-1]))


def _artifact() -> standard_artifacts.Examples:
    made = standard_artifacts.Examples()
    examples_utils.set_payload_format(made, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    return made
