"""Puts a candidate behind the factory that the user's code calls."""

import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.proof import equivalence, file_state
from tfx_perf.input.timing import memory_meter

_LOGGER = logging.getLogger(__name__)

ParserFor = Callable[[Any, Any], source_lib.Parse | None]


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
        parser_for: `(schema, options) -> parse`, see `RecordSource.parse`.
    """
    if record.chosen == record_lib.DEFAULT:
        return default_factory
    try:
        candidate = candidates.make(record.chosen, record.parameters)
    except candidate_lib.NotApplicable as refusal:
        _LOGGER.warning("The input plan is not used: %s.", refusal)
        return default_factory
    return serving(
        candidate,
        default_factory,
        memory_budget_bytes=(
            record.memory_budget_bytes if record.memory_budget_configured else None
        ),
        parser_for=parser_for,
        examined_state=record.examined_state,
    )


def serving(
    candidate: candidate_lib.Candidate,
    default_factory: source_lib.Factory,
    *,
    memory_budget_bytes: int | None,
    parser_for: ParserFor | None = None,
    examined_state: str = "",
) -> source_lib.Factory:
    """Returns a factory like `default_factory` that builds `candidate`.

    It serves whatever files, options and schema the user's code passes, also inside of a
    `tf.function`; what is held in RAM is loaded once for each split. Files that the candidate
    was not examined on are looked at first: their beginning must be what the default makes of
    it. Where the candidate does not serve, the default does, and the reason is logged: a plan
    never makes training fail.

    Args:
        candidate: what to build.
        default_factory: TFXIO's factory.
        memory_budget_bytes: what all calls together may hold; None for half of what is free at
            the first of them.
        parser_for: `(schema, options) -> parse`, see `RecordSource.parse`.
        examined_state: `file_state.digest` of the files that it was examined on.
    """
    examined = {examined_state}
    budget_bytes = memory_budget_bytes
    lock = threading.RLock()  # what is loaded twice at a time would neither be shared nor counted

    def limits(meter: memory_meter.MemoryMeter | None) -> limits_lib.Limits:
        nonlocal budget_bytes
        if budget_bytes is None:
            budget_bytes = host.available_memory_bytes() // 2
        return limits_lib.Limits(memory_bytes=budget_bytes - candidate.claimed_bytes, meter=meter)

    @tf.autograph.experimental.do_not_convert  # of a function that calls the factory
    def build(source: source_lib.RecordSource) -> tf.data.Dataset:
        with _metered(candidate) as meter:
            own_limits = limits(meter)
            dataset = candidate.build(source, limits=own_limits)
            if dataset.element_spec != source.element_spec:
                raise candidate_lib.NotApplicable(
                    f"its element spec would be {dataset.element_spec}"
                )
            state = file_state.digest(source.file_states)
            if state not in examined:
                equivalence.check_beginning(
                    source,
                    lambda beginning: candidate.build(beginning, limits=own_limits),
                )
                examined.add(state)
        return dataset

    def factory(file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
        try:
            # The graph of a tf.function cannot hold what is loaded.
            with lock, tf.init_scope():
                if not tf.executing_eagerly():
                    raise candidate_lib.NotApplicable("it is called inside of a tf.Graph")
                return build(
                    source_lib.RecordSource(
                        file_patterns=_patterns(file_pattern),
                        default_factory=default_factory,
                        options=options,
                        schema=schema,
                        parse=parser_for(schema, options) if parser_for else None,
                    )
                )
        except candidate_lib.NotApplicable as refusal:
            reason = str(refusal)
        except Exception as error:  # whatever it is, training must go on
            reason = f"{type(error).__name__}: {error}"
        host.return_freed_memory()  # of what was given up; the default's buffers come on top
        _LOGGER.warning("%s: TFXIO's default reads %s: %s", candidate.name, file_pattern, reason)
        return default_factory(file_pattern, options, schema)

    return factory


def _metered(
    candidate: candidate_lib.Candidate,
) -> contextlib.AbstractContextManager[memory_meter.MemoryMeter | None]:
    """Measures what loading takes, where there is something to load."""
    if candidate.holds_split:
        return memory_meter.MemoryMeter()
    gc.collect()  # datasets that nobody uses any more count until then
    return contextlib.nullcontext()


def _patterns(file_pattern: Any) -> tuple[str, ...]:
    """Returns the patterns that the user's code gave, one or several, as text.

    Raises:
        NotApplicable: they are elements of a dataset, known only when that is read.
    """
    if isinstance(file_pattern, tf.Tensor):
        if not hasattr(file_pattern, "numpy"):
            raise candidate_lib.NotApplicable("its files are known only while they are read")
        file_pattern = file_pattern.numpy()
    if isinstance(file_pattern, str | bytes):
        file_pattern = [file_pattern]
    return tuple(tf.compat.as_str(pattern) for pattern in file_pattern)
