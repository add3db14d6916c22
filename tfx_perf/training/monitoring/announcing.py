"""Says how far a training is, where somebody waits for it."""

import contextlib
from collections.abc import Iterator

from tfx_perf import console, periodic, workers
from tfx_perf.training.monitoring.live_training import LiveTraining

_SECONDS = 2.0


@contextlib.contextmanager
def announcing(
    training: LiveTraining, *, step_count: int | None, address: str = ""
) -> Iterator[None]:
    """Has another thread say how many steps are done while the context lasts.

    The training does nothing for it. Where nobody waits there is no thread. Of several workers the
    first one says it.

    Args:
        training: what to tell of.
        step_count: steps of the whole `fit`; None if unknown.
        address: where its metrics are served; empty if they are not.
    """
    if not (console.is_status_watched() and workers.this().is_chief):
        yield
        return
    of = f" of {step_count:,}" if step_count else ""
    served = f"; metrics at {address}" if address else ""
    console.set_status(f"training{served}")

    def how_far() -> str:
        done = training.done_count
        return f"{done:,}{of} steps done" if done else "tracing, compiling and the first steps"

    with periodic.calling(
        lambda: console.set_status(f"training: {how_far()}{served}"), seconds=_SECONDS
    ):
        yield
    console.set_status("trained; saving and measuring the model")
