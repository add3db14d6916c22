"""The level that a person has decided on: a worse run that was blessed is the measure since."""

from collections.abc import Sequence

import numpy as np

from tfx_perf import metrics
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.settings.rule import Rule


def beginning(
    key: str, figures: Sequence[float], *, runs: Sequence[Run], rule: Rule, ledger: Ledger
) -> int:
    """Returns the place of the last change for the worse that a person has blessed, 0 if none has.

    The runs before it would refuse what was decided, through the anchor for years. A blessed run
    that is no worse than those before it was refused for something else, and changes nothing.

    Args:
        key: the metric.
        figures: of comparable blessed runs, oldest first.
        runs: whose figures they are.
        rule: with a margin.
        ledger: with what people have decided.
    """
    sign = 1.0 if rule.direction_of(key) is metrics.Direction.LOWER else -1.0
    for place in reversed(range(1, len(runs))):
        usual = float(np.median(figures[:place]))
        worse = sign * (figures[place] - usual)
        is_worse = worse > rule.smallest_change * max(abs(usual), rule.scale)
        if is_worse and ledger.is_decided(runs[place]):
            return place
    return 0
