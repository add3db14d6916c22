"""What a run that is compared with none because of its model's size takes, beside a blessed one.

Nobody can say how long the steps of a larger model may take but its owner: such a run is refused
for its speed only where its size does not explain it (`unexplained`), and whoever reads the
decision must not take it for one that was compared.
"""

from collections.abc import Mapping, Sequence

from tfx_perf.gate import size
from tfx_perf.gate.outcome import Outcome
from tfx_perf.gate.run import Run

_STEP = "step_time_seconds"
_WORK = {
    "flops_per_step": "A step does {} times the work of the last blessed run's, and takes",
    "parameter_count": "The model has {} times the last blessed run's parameters, and a step takes",
}


def slower_steps(
    candidate: Run,
    last: Run,
    *,
    differences: Mapping[str, tuple[str, str]],
    outcomes: Sequence[Outcome],
) -> str:
    """Returns in a sentence that steps take longer, and what can refuse that.

    Empty where they do not, or where more than the size differs, so that times say nothing.

    Args:
        candidate: the run.
        last: the latest blessed run of its node.
        differences: environment field to both values; see `size.differences`.
        outcomes: all answers on the run.
    """
    seconds, before = candidate.figure(_STEP), last.figure(_STEP)
    sizes, others = size.of(candidate.environment), size.of(last.environment)
    field = next((field for field in _WORK if field in differences), None)
    is_of_size_alone = differences.keys() <= sizes.keys() & others.keys()
    if not (field and is_of_size_alone and seconds and before and seconds > before):
        return ""
    work = _WORK[field].format(f"{sizes[field] / others[field]:.3g}")
    found = f"{work} {seconds / before:.3g} times as long"
    of_step = [item for item in outcomes if item.metric == _STEP]
    if any(item.refuses or item.kind == "limit" for item in of_step):
        return f"{found}."
    return f"{found}; not refused for it: rules: {{{_STEP}: {{max: SECONDS}}}} would set a limit."
