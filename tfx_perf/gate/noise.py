"""How much a figure may be expected to vary from run to run, before runs have shown it."""

import enum

from tfx_perf import metrics


class Kind(enum.Enum):
    """What disturbs a figure: what makes times vary does not make losses vary."""

    TIME = "time"
    MEMORY = "memory"
    QUALITY = "quality"


_KINDS = {"bytes": Kind.MEMORY, "loss": Kind.QUALITY, "score": Kind.QUALITY}

# Relative run-to-run standard deviations, by kind of figure; see docs/gate_statistics.md.
_STEADY = 0.01
_ONE_OFF = 0.05
# An example's loss scatters about as much as it is large: the mean of a thousand, which are others
# each time, by 3 %. Shares of them, such as accuracy, vary less.
_ON_OTHER_EXAMPLES = 0.03
_BY_UNIT = {"loss": _ON_OTHER_EXAMPLES, "times": _ONE_OFF}
# Times of things that are done once and not averaged over many steps, tails, and waits.
_ONCE = frozenset(
    (
        "setup_time_seconds", "time_to_first_step_seconds", "compile_time_seconds",
        "fit_time_seconds", "garbage_collection_seconds", "checkpoint_time_seconds",
        "input_preparation_seconds", "step_time_p90_seconds", "step_time_p99_seconds",
        "trace_time_seconds", "first_batch_seconds", "input_wait_ratio", "compile_share_ratio",
        "communication_share_ratio", "load_imbalance_ratio",
    )
)  # fmt: skip


def prior(key: str) -> float:
    """Returns the relative standard deviation to expect of a metric.

    Args:
        key: see `tfx_perf.metrics.lookup`.

    Raises:
        KeyError: there is no such metric.
    """
    return _ONE_OFF if key in _ONCE else _BY_UNIT.get(metrics.lookup(key).unit, _STEADY)


def kind(key: str) -> Kind:
    """Returns what disturbs a metric; shares and rates are made of times.

    Args:
        key: as for `prior`.

    Raises:
        KeyError: there is no such metric.
    """
    return _KINDS.get(metrics.lookup(key).unit, Kind.TIME)
