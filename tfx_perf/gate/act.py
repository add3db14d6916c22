"""What a person decided about a run."""

from typing import Literal

import pydantic

from tfx_perf import records


class Act(records.Record):
    """One decision of a person; it outweighs the gate's, and an earlier one of a person.

    Attributes:
        kind: `bless`: the run counts as baseline from now on; `unbless`: it no longer does.
        run_id: the run.
        who: who decided.
        time: when, with its time zone.
        reason: why, in the person's words.
    """

    kind: Literal["bless", "unbless"]
    run_id: str
    who: str
    time: pydantic.AwareDatetime
    reason: str
