"""How far a profile has come: what is left of it if its process is killed."""

from typing import ClassVar, Literal

from tfx_perf import records
from tfx_perf.memory.record import ProfileRecord, Status, StepMemory

FILE_NAME = "profile_progress.json"

Work = Literal["plain", "xla", "fragmentation"]


class Running(records.Record):
    """What is being done.

    Attributes:
        work: a step under a plan, or the look at the allocator's fragmentation.
        batch_size: examples in the batch.
    """

    work: Work
    batch_size: int


class ProfileProgress(records.Record):
    """A profile in the making; written before and after every measurement.

    Attributes:
        sizes: the batch sizes to profile, ascending.
        compiled_sizes: those of them to ask XLA about.
        running: None if nothing is.
        steps: what has been done.
        draft: the record but for the steps; None before any size has trained.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.memory_progress/1"

    sizes: tuple[int, ...] = ()
    compiled_sizes: tuple[int, ...] = ()
    running: Running | None = None
    steps: tuple[StepMemory, ...] = ()
    draft: ProfileRecord | None = None

    def has(self, work: Work, batch_size: int) -> bool:
        """Returns whether a step has a row, or fragmentation has been looked at."""
        if work == "fragmentation":
            draft = self.draft
            return draft is not None and bool(
                draft.fragmentation_gap or draft.fragmentation_ratio is not None
            )
        return any((step.plan, step.batch_size) == (work, batch_size) for step in self.steps)

    def begun(self, work: Work, batch_size: int) -> "ProfileProgress":
        """Returns the progress with something under way."""
        return self.model_copy(update={"running": Running(work=work, batch_size=batch_size)})

    def with_step(self, step: StepMemory) -> "ProfileProgress":
        """Returns the progress with a step done, and nothing under way."""
        return self.model_copy(update={"running": None, "steps": (*self.steps, step)})

    def with_fields(self, **fields: float | str) -> "ProfileProgress":
        """Returns the progress with fields of the draft filled in, and nothing under way."""
        draft = self.draft and self.draft.model_copy(update=fields)
        return self.model_copy(update={"running": None, "draft": draft})

    def cut_off(self, status: Status, reason: str) -> "ProfileProgress":
        """Returns the progress with what was under way ended so.

        Args:
            status: of the step.
            reason: what happened to the process, as a phrase.
        """
        if self.running is None:
            return self
        if self.running.work == "fragmentation":
            return self.with_fields(fragmentation_gap=f"its process {reason}")
        return self.with_step(
            StepMemory(
                plan=self.running.work,
                batch_size=self.running.batch_size,
                status=status,
                reason=f"its process {reason}",
            )
        )
