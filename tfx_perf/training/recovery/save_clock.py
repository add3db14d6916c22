"""SaveClock: how much of the time goes into checkpoints."""

import dataclasses
import time

# Training goes on for this many times what a save took before there is another.
_SAVE_SHARE = 50
# What is taken for it before the first: of a small model. Shorter trainings have no checkpoint;
# training again takes no longer.
_FIRST_SECONDS = 0.04


@dataclasses.dataclass
class SaveClock:
    """When there was a checkpoint last, over all `fit`s of a process.

    Attributes:
        saved_at: when, on `time.perf_counter`'s clock; at first, when the first `fit` began. What
            was left out is as if it had not been.
        save_seconds: what it took.
    """

    saved_at: float = dataclasses.field(default_factory=time.perf_counter)
    save_seconds: float = _FIRST_SECONDS

    @property
    def since(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self.saved_at

    def leave_out(self, seconds: float) -> None:
        """Leaves out of `since` what has just been spent on something else than training."""
        self.saved_at += seconds

    @property
    def is_cheap(self) -> bool:
        """Whether another checkpoint takes a small share of the time."""
        return self.since >= _SAVE_SHARE * self.save_seconds
