"""Puts a candidate behind the factory that the user's code calls."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib

_LOGGER = logging.getLogger(__name__)

ParserFor = Callable[[Any, Any], source_lib.Parser | None]


def tuned_factory(
    default_factory: source_lib.Factory,
    record: record_lib.TuningRecord,
    *,
    parser_for: ParserFor | None = None,
) -> source_lib.Factory:
    """Returns a factory like `default_factory` that builds the chosen candidate.

    Args:
        default_factory: TFXIO's factory, from `fn_args.data_accessor`.
        record: InputTuner's choice.
        parser_for: `(schema, options) -> parser`, see `RecordSource.parser`.
    """
    if record.chosen == record_lib.DEFAULT:
        return default_factory
    return serving(
        candidates.make(record.chosen, record.parameters),
        default_factory,
        memory_budget_bytes=(
            record.memory_budget_bytes if record.memory_budget_configured else None
        ),
        parser_for=parser_for,
    )


def serving(
    candidate: candidate_lib.Candidate,
    default_factory: source_lib.Factory,
    *,
    memory_budget_bytes: int | None,
    parser_for: ParserFor | None = None,
) -> source_lib.Factory:
    """Returns a factory like `default_factory` that builds `candidate`.

    It serves whatever files, options and schema the user's code passes; what is held in RAM is
    loaded once for each split. Where the candidate does not serve, the default does, and the
    reason is logged: a plan never makes training fail.

    Args:
        candidate: what to build.
        default_factory: TFXIO's factory.
        memory_budget_bytes: for each call; None for half of what is then free.
        parser_for: `(schema, options) -> parser`, see `RecordSource.parser`.
    """

    def factory(file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
        try:
            patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
            source = source_lib.RecordSource(
                file_patterns=tuple(patterns),
                default_factory=default_factory,
                options=options,
                schema=schema,
                parser=parser_for(schema, options) if parser_for else None,
            )
            limits = limits_lib.Limits(
                memory_bytes=memory_budget_bytes or host.available_memory_bytes() // 2
            )
            dataset = candidate.build(source, limits=limits)
            if dataset.element_spec == source.element_spec:
                return dataset
            reason = f"its element spec would be {dataset.element_spec}"
        except candidate_lib.NotApplicable as refusal:
            reason = str(refusal)
        except Exception as error:  # whatever it is, training must go on
            reason = f"{type(error).__name__}: {error}"
        _LOGGER.warning("%s: TFXIO's default reads %s: %s", candidate.name, file_pattern, reason)
        return default_factory(file_pattern, options, schema)

    return factory
