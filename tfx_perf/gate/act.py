"""What a person decided about a run."""

from typing import TYPE_CHECKING, Literal, Union

import pydantic

from tfx_perf import records
from tfx_perf.gate.run import Run

if TYPE_CHECKING:
    from tfx_perf.mlmd import recorded_runs


class Act(records.Record):
    """One decision of a person; it outweighs the gate's, and an earlier one of a person.

    Attributes:
        kind: `bless`: the run counts as baseline from now on; `unbless`: it no longer does.
        run_id: the run's, in its pipeline.
        pipeline: the run's; empty means any, as in acts of earlier versions.
        node: the run's; likewise.
        who: who decided.
        time: when, with its time zone.
        reason: why, in the person's words.
    """

    kind: Literal["bless", "unbless"]
    run_id: str
    pipeline: str = ""
    node: str = ""
    who: str
    time: pydantic.AwareDatetime
    reason: str

    def is_about(self, run: Union[Run, "recorded_runs.RecordedRun"]) -> bool:
        """Whether it was decided about a run, as the gate saw it or as ML Metadata has it."""
        return self.run_id == run.run_id and all(
            own in ("", its) for own, its in ((self.pipeline, run.pipeline), (self.node, run.node))
        )
