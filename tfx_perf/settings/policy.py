"""What the gate does about each verdict."""

from typing import Literal

from tfx_perf.settings.section import Section

_Answer = Literal["bless", "refuse"]


class Policy(Section):
    """Whether a rule's verdict lets the run through.

    The defaults fail closed: only what was shown to be good enough passes. The one
    exception is the run that nothing can be compared with, because a baseline has to begin
    somewhere; the absolute limits then decide alone. Blessing everything but `limit` shows
    what the gate would do before it may.

    Attributes:
        limit: a figure is beyond an absolute limit.
        regression: a change for the worse beyond the margin that noise does not explain.
        inconclusive: the noise is too large to rule a change beyond the budget out.
        invalid: the figure is missing, was not finite or rests on too few steps.
        not_compared: a change rule has no comparable blessed run.
    """

    limit: _Answer = "refuse"
    regression: _Answer = "refuse"
    inconclusive: _Answer = "refuse"
    invalid: _Answer = "refuse"
    not_compared: _Answer = "bless"
