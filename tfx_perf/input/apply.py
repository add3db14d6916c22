"""Puts a candidate behind the factory that the user's code calls."""

import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import candidates, equivalence
from tfx_perf.input.candidates.candidate import Candidate, NotApplicable
from tfx_perf.input.candidates.limits import Limits, MemoryMeter
from tfx_perf.input.candidates.source import Factory, Parse, RecordSource
from tfx_perf.input.record import DEFAULT, TuningRecord

_LOGGER = logging.getLogger(__name__)

ParserFor = Callable[[Any, Any], Parse | None]


def tuned_factory(
    default_factory: Factory, record: TuningRecord, *, parser_for: ParserFor | None = None
) -> Factory:
    """Returns a factory like TFXIO's `default_factory` that builds the candidate of `record`."""
    if record.chosen == DEFAULT:
        return default_factory
    try:
        candidate = candidates.make(record.chosen, service_address=record.service_address)
    except NotApplicable as refusal:
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
    candidate: Candidate,
    default_factory: Factory,
    *,
    memory_budget_bytes: int | None,
    parser_for: ParserFor | None = None,
    examined_state: str = "",
) -> Factory:
    """Returns a factory like TFXIO's `default_factory` that builds `candidate`.

    It serves any files, options and schema that the user's code passes, and loads a split into RAM
    once. It checks the beginning of files other than those of `examined_state`. A plan never makes
    training fail: if the candidate cannot serve, the default does, and the reason is logged. All
    calls share the memory budget; None means half of the memory that is free at the first call.
    """
    examined = {examined_state}
    lock = threading.RLock()  # concurrent loads would be neither shared nor counted

    @tf.autograph.experimental.do_not_convert  # when a tf.function calls the factory
    def build(source: RecordSource) -> tf.data.Dataset:
        nonlocal memory_budget_bytes
        with _metered(candidate) as meter:
            if memory_budget_bytes is None:
                memory_budget_bytes = host.available_memory_bytes() // 2
            left_bytes = memory_budget_bytes - candidate.claimed_bytes
            limits = Limits(memory_bytes=left_bytes, meter=meter)
            dataset = candidate.build(source, limits=limits)
            if dataset.element_spec != source.element_spec:
                raise NotApplicable(f"its element spec would be {dataset.element_spec}")
            state = source.files_digest
            if state not in examined:
                equivalence.check_beginning(source, candidate, limits=limits)
                examined.add(state)
        return dataset

    def factory(file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
        try:
            # The graph of a tf.function cannot hold the loaded data.
            with lock, tf.init_scope():
                if not tf.executing_eagerly():
                    raise NotApplicable("it is called inside of a tf.Graph")
                return build(
                    RecordSource(
                        file_patterns=_patterns(file_pattern),
                        default_factory=default_factory,
                        options=options,
                        schema=schema,
                        parse=parser_for(schema, options) if parser_for else None,
                    )
                )
        except NotApplicable as refusal:
            reason = str(refusal)
        except Exception as error:  # whatever happens, training must continue
            reason = f"{type(error).__name__}: {error}"
        host.return_freed_memory()  # of the failed attempt; the default's buffers come on top
        _LOGGER.warning("%s: TFXIO's default reads %s: %s", candidate.name, file_pattern, reason)
        return default_factory(file_pattern, options, schema)

    return factory


def _metered(candidate: Candidate) -> contextlib.AbstractContextManager[MemoryMeter | None]:
    """Measures the memory that loading takes, if the candidate loads anything."""
    if candidate.holds_split:
        return MemoryMeter()
    gc.collect()  # unused datasets count towards the budget until collected
    return contextlib.nullcontext()


def _patterns(file_pattern: Any) -> tuple[str, ...]:
    """Returns one or several patterns as text; NotApplicable if they are symbolic."""
    if isinstance(file_pattern, tf.Tensor):
        if not hasattr(file_pattern, "numpy"):
            raise NotApplicable("its files are known only while they are read")
        file_pattern = file_pattern.numpy()
    if isinstance(file_pattern, str | bytes):
        file_pattern = [file_pattern]
    return tuple(tf.compat.as_str(pattern) for pattern in file_pattern)
