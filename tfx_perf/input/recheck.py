"""Whether a plan that was found for other data of the kind serves these as well."""

import time

from tfx_perf.config import InputSettings
from tfx_perf.hardware import host
from tfx_perf.input import candidates
from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.examination import Examination
from tfx_perf.input.record import DEFAULT, MeasuredData, TuningRecord

_LARGEST_RATIO = 1.25  # of two amounts that are about the same
_REFERENCE_SHARE = 0.05  # of the time budget, for reading the default; as in a search


def for_other_data(
    plan: TuningRecord,
    source: RecordSource,
    *,
    settings: InputSettings,
    example_count: int | None = None,
) -> TuningRecord:
    """Returns the plan for these data; NotApplicable if amount or examples rule it out."""
    if source.compression != plan.compression:
        raise NotApplicable(
            f"its data were compressed otherwise: {plan.compression or 'not at all'}"
        )
    # Not with the data of its last use: small differences from day to day would add up.
    measured_on = plan.measured_on or MeasuredData(
        file_count=plan.file_count,
        file_bytes=plan.file_bytes,
        example_count=plan.example_count,
    )
    amounts = {
        "files": (measured_on.file_count, len(source.files)),
        "bytes": (measured_on.file_bytes, source.total_bytes),
    }
    for unit, (was, now) in amounts.items():
        if max(was, now) > _LARGEST_RATIO * min(was, now):
            raise NotApplicable(f"its data were {was} {unit}, these are {now}")
    facts = {
        "measured_on": measured_on,
        "file_count": len(source.files),
        "file_bytes": source.total_bytes,
        "example_count": example_count,
    }
    if plan.chosen == DEFAULT:  # of which there is nothing to prove
        return plan.model_copy(
            update={**facts, "checked_example_count": 0, "examined_state": ""}
        )
    endless = source.replace_options(num_epochs=None, shuffle=True, batch_size=plan.batch_size)
    examined_state = endless.files_digest
    examined = Examination(
        endless,
        memory_budget_bytes=settings.memory_budget_bytes or host.available_memory_bytes() // 2,
        reference_seconds=_REFERENCE_SHARE * settings.time_budget_seconds,
        allow_weaker_shuffle=settings.allow_weaker_shuffle,
    )
    found = examined.examine(
        candidates.make(plan.chosen, service_address=plan.service_address),
        deadline_seconds=time.monotonic() + settings.time_budget_seconds,
    )
    if found.dataset is None:
        raise NotApplicable(
            f"on these data {plan.chosen} does not hold: {found.outcome.reason}"
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
