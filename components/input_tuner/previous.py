"""Plans of earlier runs, reused if measuring again would give the same result."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx.types import artifact

from tfx_perf.components import artifacts
from tfx_perf.config import InputSettings
from tfx_perf.core import cache_key
from tfx_perf.hardware import devices
from tfx_perf.input import candidate_check, candidates, record
from tfx_perf.input.candidates import candidate
from tfx_perf.input.candidates import source as source_lib

_LOGGER = logging.getLogger(__name__)
_DATA = "data"
_LARGEST_RATIO = 1.25  # of two amounts that are about the same


def key_of(
    source: source_lib.RecordSource, *, settings: InputSettings, training_digest: str
) -> dict[str, str]:
    """Returns what a plan depends on: data (not their location), versions, settings and code."""
    features = f"{source.element_spec}\n{source.options.label_key}"
    return {
        _DATA: cache_key.of_files(source.files),
        "features": cache_key.digest(features.encode()),
        **devices.key_parts("tfx-bsl"),
        "settings": settings.model_dump_json(),
        "training": training_digest,
    }


def keyed(
    plan: record.TuningRecord,
    key: Mapping[str, str],
    *,
    plans: Sequence[artifact.Artifact] = (),
    failures: int = 0,
) -> record.TuningRecord:
    """Returns a plan with its key, without which it is not reused.

    The plan of a search that was not worth its time gets no key. A search that ended too early is
    tried again, since a quieter machine may finish it; `failures` counts those without a plan.
    """
    if not plan.undecided_count:
        return plan.model_copy(update={"key": dict(key)}) if plan.is_conclusive else plan
    plan = plan.model_copy(
        update={
            "key": dict(key),
            "undecided_count": plan.undecided_count + failures + _undecided_before(plans, key),
        }
    )
    then = (
        "The next run searches again."
        if plan.needs_another_search
        else "Earlier searches ended early, too: no run searches again for this code and settings."
    )
    return plan.model_copy(update={"reason": f"{plan.reason} {then}"})


def _undecided_before(plans: Sequence[artifact.Artifact], key: Mapping[str, str]) -> int:
    """Returns how many of the last searches with this key, on any data, ended too early."""
    _, plan = next(_newest_first(plans), ("", None))
    if plan is None or cache_key.differences(plan.key, key).keys() - {_DATA}:
        return 0
    return plan.undecided_count


def find(
    plans: Sequence[artifact.Artifact],
    key: Mapping[str, str],
    *,
    source: source_lib.RecordSource,
    settings: InputSettings,
    example_count: int | None = None,
) -> record.TuningRecord | None:
    """Returns the newest plan with the same key, marked as reused; None if there is none.

    If the data differ but are about as large, as in a window that moves from day to day, the plan
    is checked on the new data and says so. The reasons for not using other plans are logged.
    """
    began = time.monotonic()
    for uri, plan in _newest_first(plans):
        try:
            newest, also = plan, ""
            if _data_differ(plan, key):
                also = ", on other data"
                newest = _for_other_data(
                    plan, source, settings=settings, example_count=example_count
                )
        except candidate.NotApplicable as refusal:
            _LOGGER.info("The plan in %s is not used again: %s.", uri, refusal)
            continue
        _LOGGER.info("The plan in %s is used again%s.", uri, also)
        return _used_again(newest, uri, began=began, key=dict(key))
    return None


def kept(
    plans: Sequence[artifact.Artifact],
    *,
    source: source_lib.RecordSource,
    settings: InputSettings,
    example_count: int | None = None,
) -> record.TuningRecord | None:
    """Returns the last run's plan, checked on the data; None if it is the default or unfit.

    If a search is not worth its time, a run after an edit or an upgrade is then no slower than the
    previous one. The plan gets no key, so that the next run considers a search again.
    """
    began = time.monotonic()
    uri, plan = next(_newest_first(plans), ("", None))
    if plan is None or plan.chosen == record.DEFAULT:
        return None
    if "service" in plan.chosen.split("+"):  # it was only valid for the service it was found with
        return None
    plain = plan.model_copy(update={"service_address": None})
    try:
        usable = _for_other_data(plain, source, settings=settings, example_count=example_count)
    except candidate.NotApplicable as refusal:
        _LOGGER.info("The plan in %s is not kept: %s.", uri, refusal)
        return None
    return _used_again(usable, uri, began=began, key={}, training_digest="")


def _used_again(
    plan: record.TuningRecord, uri: str, *, began: float, **update: Any
) -> record.TuningRecord:
    seconds = time.monotonic() - began
    return plan.model_copy(
        update={
            "reused_from": plan.reused_from or uri, "tuning_time_seconds": seconds, **update
        }
    )  # fmt: skip


def _newest_first(plans: Sequence[artifact.Artifact]) -> Iterator[tuple[str, record.TuningRecord]]:
    return artifacts.newest_first(plans, record.TuningRecord, file_name=record.FILE_NAME)


def _data_differ(plan: record.TuningRecord, key: Mapping[str, str]) -> bool:
    """Whether the plan is for other data; raises `NotApplicable` if it cannot be reused at all."""
    if not plan.key or plan.needs_another_search:
        raise candidate.NotApplicable("its search did not finish")
    candidates.make(plan.chosen)  # refuses one that only an earlier version had
    changes = cache_key.differences(plan.key, key)
    if changes.keys() - {_DATA}:
        raise candidate.NotApplicable(cache_key.describe(changes))
    return bool(changes)


def _for_other_data(
    plan: record.TuningRecord,
    source: source_lib.RecordSource,
    *,
    settings: InputSettings,
    example_count: int | None = None,
) -> record.TuningRecord:
    """Returns the plan for these data; NotApplicable if their amount or examples rule it out."""
    if source.compression != plan.compression:
        raise candidate.NotApplicable(
            f"its data were compressed differently: {plan.compression or 'not at all'}"
        )
    # Compares with the measured data, not those of its last use: small differences would add up.
    measured_on = plan.measured_on or record.MeasuredData(
        file_count=plan.file_count, file_bytes=plan.file_bytes, example_count=plan.example_count
    )
    amounts = {
        "files": (measured_on.file_count, len(source.files)),
        "bytes": (measured_on.file_bytes, source.total_bytes),
    }
    for unit, (was, now) in amounts.items():
        if max(was, now) > _LARGEST_RATIO * min(was, now):
            raise candidate.NotApplicable(f"its data were {was} {unit}, these are {now}")
    facts = {
        "measured_on": measured_on,
        "file_count": len(source.files),
        "file_bytes": source.total_bytes,
        "example_count": example_count,
    }
    if plan.chosen == record.DEFAULT:  # there is nothing to prove
        return plan.model_copy(update={**facts, "checked_example_count": 0, "examined_state": ""})
    endless = source.replace_options(num_epochs=None, shuffle=True, batch_size=plan.batch_size)
    examined_state = endless.files_digest
    examined = candidate_check.CandidateCheck(endless, settings=settings)
    examination = examined.examine(
        candidates.make(plan.chosen, service_address=plan.service_address),
        deadline_seconds=time.monotonic() + settings.tuning_seconds,
    )
    if examination.dataset is None:
        raise candidate.NotApplicable(
            f"on these data {plan.chosen} does not hold: {examination.outcome.reason}"
        )
    reference = examined.reference
    if reference.complete:
        facts["example_count"] = reference.digest.count
    return plan.model_copy(
        update={
            **facts,
            "checked_example_count": reference.digest.count,
            "examined_state": examined_state,
        }
    )
