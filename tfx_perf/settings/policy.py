"""What the gate does about each verdict."""

from typing import Literal

from tfx_perf.settings.base import Section

_Answer = Literal["bless", "refuse"]
_AnswerByQuality = Literal["bless", "refuse", "if quality holds"]


class Policy(Section):
    """Whether a rule's verdict lets the run through.

    The defaults fail closed: only what was shown to be good enough passes. The one
    exception is the first run, because a baseline has to begin somewhere; the absolute limits
    then decide alone. Blessing everything but `limit` shows
    what the gate would do before it may.

    Attributes:
        limit: a figure is beyond an absolute limit.
        regression: a change for the worse beyond the margin that noise does not explain.
        inconclusive: the noise is too large to rule a change beyond the budget out.
        invalid: the figure is missing, was not finite or rests on too few steps.
        not_comparable: blessed runs are on record, and none of them was measured in the same
            environment at about the same size. `if quality holds` refuses unless a loss or an
            evaluation metric, which no environment changes, was compared; and a figure that is
            worse than twice its budget and what differs explains.
        not_compared: no blessed run is on record that has the figure.
    """

    limit: _Answer = "refuse"
    regression: _Answer = "refuse"
    inconclusive: _Answer = "refuse"
    invalid: _Answer = "refuse"
    not_comparable: _AnswerByQuality = "if quality holds"
    not_compared: _Answer = "bless"
