"""Says how far a training is, where somebody waits for it."""

import contextlib
from collections.abc import Iterator

from tfx_perf import activity, periodic
from tfx_perf.training.monitoring.live_training import LiveTraining

_SECONDS = 2.0


@contextlib.contextmanager
def announcing(training: LiveTraining, *, step_count: int | None) -> Iterator[None]:
    """Has another thread say how many steps are done while the context lasts.

    The training does nothing for it. Where nobody waits there is no thread.

    Args:
        training: what to tell of.
        step_count: steps of the whole `fit`; None if unknown.
    """
    if not activity.is_watched():
        yield
        return
    of = f" of {step_count:,}" if step_count else ""
    activity.say("training")
    with periodic.calling(
        lambda: activity.say(f"training: {training.done_count:,}{of} steps done"),
        seconds=_SECONDS,
    ):
        yield
    activity.say("trained; saving and measuring the model")
