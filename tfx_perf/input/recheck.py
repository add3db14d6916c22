"""Whether a plan that was found for other data of the kind serves these as well.

Data that come in daily differ from day to day, and what makes one input pipeline faster than
another does not: schema, amount, files, machine and code. The amount is compared here; that the
candidate gives the same examples as the default is checked anew, on these data.
"""

import time

from tfx_perf import config as perf_config
from tfx_perf.hardware import host
from tfx_perf.input import candidates, examination
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib

_LARGEST_RATIO = 1.25  # of two amounts that are about the same
_REFERENCE_SHARE = 0.05  # of the time budget, for reading the default; as in a search


def obstacle(
    plan: record_lib.TuningRecord,
    source: source_lib.RecordSource,
    *,
    config: perf_config.InputConfig,
) -> str | None:
    """Returns why the plan does not serve these data, None if it does.

    Args:
        plan: found with the same settings, schema, code and machine.
        source: the data.
        config: the search's budgets.

    Raises:
        UserError: the data cannot be read.
    """
    if source.compression != plan.compression:
        return f"its data were compressed otherwise: {plan.compression or 'not at all'}"
    amounts = {
        "files": (plan.file_count, len(source.files)),
        "bytes": (plan.file_bytes, source.total_bytes),
    }
    for unit, (was, now) in amounts.items():
        if max(was, now) > _LARGEST_RATIO * min(was, now):
            return f"its data were {was} {unit}, these are {now}"
    if plan.chosen == record_lib.DEFAULT:
        return None
    endless = source.replace_options(
        num_epochs=None, shuffle=True, batch_size=plan.batch_size
    )
    found = examination.Examination(
        endless,
        memory_budget_bytes=config.memory_budget_bytes or host.available_memory_bytes() // 2,
        reference_seconds=_REFERENCE_SHARE * config.time_budget_seconds,
        allow_weaker_shuffle=config.allow_weaker_shuffle,
    ).examine(
        candidates.make(plan.chosen, plan.parameters),
        deadline_seconds=time.monotonic() + config.time_budget_seconds,
    )
    if found.dataset is None:
        return f"on these data {plan.chosen} does not hold: {found.outcome.reason}"
    return None
