"""What training takes at a few batch sizes, tried in processes of their own."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

from tfx_perf import console, errors, isolate
from tfx_perf.components.memory_profiler import jobs, processes
from tfx_perf.hardware import host
from tfx_perf.memory import claim, footprint
from tfx_perf.memory.record import Footprint, ProfileRecord

_MOST_FOOTPRINTS = 4
_FOOTPRINT_SHARE = 0.25  # of the time, that one beyond the first may take
_WORTH_IT = 2  # times the batch before; less would say little


@dataclasses.dataclass(frozen=True)
class _Finished:
    """A footprint, and how long its process took, from the start to the end."""

    footprint: Footprint
    took_seconds: float


class Footprints:
    """Takes footprints within a time, whatever becomes of their processes."""

    def __init__(self, own: processes.Processes, *, timeout_seconds: float) -> None:
        """Starts the time.

        Args:
            own: what starts them.
            timeout_seconds: for all of MemoryProfiler.
        """
        self._processes, self._timeout_seconds = own, timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._first: isolate.Child | None = None
        self._first_began = 0.0

    @contextlib.contextmanager
    def first_beside(self) -> Iterator[None]:
        """Begins the footprint at the module's own batch size; what is done meanwhile is beside it.

        Tracing and the user's code are one thread's work for the most part. Where there may be an
        accelerator it does not begin: two processes would not both have its memory.
        """
        if host.may_have_accelerators():
            yield
            return
        self._first_began = time.time()
        with self._processes.started(
            jobs.measure_footprint, log_name="footprint-own.log", batch_size=None
        ) as self._first:
            yield

    def give_up_first(self) -> bool:
        """Ends what began beside, so that others have its memory; returns whether anything did."""
        first, self._first = self._first, None
        if first is not None:
            first.end()
        return first is not None

    def added_to(
        self, found: ProfileRecord, *, asked: Sequence[int], example_count: int | None
    ) -> ProfileRecord:
        """Returns the record with what training takes, and what that says of the largest batch.

        Args:
            found: the record of the steps.
            asked: the batch sizes of the settings; no larger one is trained on, if there are some.
            example_count: that the split has; None if nobody knows.
        """
        counts = filter(None, [example_count, found.epoch_example_count])
        most = min(counts, default=claim.ENOUGH)
        trained_most = max(asked, default=most)
        steps = [step for step in found.steps if step.plan == "plain"]
        ran = [step.batch_size for step in steps if step.status == "measured"]
        taken: list[Footprint] = []
        limit_bytes, remark = found.memory_limit_bytes, ""
        size = found.module_batch_size if found.module_batch_size in ran else max(ran, default=None)
        beside = self._finished_beside()
        if size not in beside:
            beside = {}
        alone: list[int] = []  # limits; what goes on beside takes of the memory, too
        while size is not None:
            done = beside.pop(size, None)
            if done is None:
                done = self._finished(size)
                alone += filter(None, [done.footprint.limit_bytes])
            taken.append(done.footprint)
            beside_bytes = min(limit_bytes, done.footprint.limit_bytes or limit_bytes)
            limit_bytes = min(alone, default=beside_bytes)
            if beside:
                size = min(beside)
                continue
            size = claim.next_size(
                taken, limit_bytes=limit_bytes, most=trained_most, steps=steps
            )
            if len(taken) == _MOST_FOOTPRINTS:
                break
            if size is not None:
                size = self._affordable(size, done)
                remark = "" if size else "; a larger one would have taken too long"
        said = claim.claim(taken, limit_bytes=limit_bytes, most=most, steps=steps)
        return found.model_copy(
            update={
                "footprints": tuple(sorted(taken, key=lambda item: item.batch_size)),
                "footprint_line": said.line,
                "largest_batch_size": said.largest,
                "largest_is_lower_bound": said.is_lower_bound,
                "largest_remark": said.remark + remark,
                "memory_limit_bytes": limit_bytes,
            }
        )

    def _finished_beside(self) -> dict[int, _Finished]:
        """Returns what was taken beside, by batch size.

        Without a figure, or not far from the limit that the other process left, it is taken alone.
        """
        if self._first is None:
            return {}
        with contextlib.suppress(errors.ChildError, errors.UserError):
            self._first.result(timeout_seconds=self._left_seconds)
        found = {}
        for place in self._processes.folder.glob(jobs.footprint_file("*")):
            item = Footprint.read(place)
            if item.status == "measured" and claim.is_far_from_limit(item):
                took_seconds = place.stat().st_mtime - self._first_began
                found[item.batch_size] = _Finished(item, took_seconds=took_seconds)
        return found

    def _finished(self, size: int) -> _Finished:
        console.set_status(f"batch size {size:,}: the first steps of training")
        began = time.monotonic()
        place = self._processes.folder / jobs.footprint_file(size)
        place.unlink(missing_ok=True)  # of the process beside
        try:
            self._processes.run(
                jobs.measure_footprint,
                log_name=f"footprint-{size}.log",
                timeout_seconds=self._left_seconds,
                batch_size=size,
            )
        except errors.ChildError as error:
            if not place.exists():  # else it was stopped at the limit
                status, reason = processes.status_of(error), f"its process {error.cause}"
                ended = Footprint(batch_size=size, status=status, reason=reason)
                return _Finished(ended, took_seconds=time.monotonic() - began)
        return _Finished(Footprint.read(place), took_seconds=time.monotonic() - began)

    @property
    def _left_seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _affordable(self, size: int, last: _Finished) -> int | None:
        """Returns the batch, or a smaller one if it would take too long; None if that is too small.

        Args:
            size: to train on.
            last: what was trained on before; a step is taken to need time by its examples. If
                its time is not known, any size is worth a try.
        """
        left_seconds = min(self._left_seconds, _FOOTPRINT_SHARE * self._timeout_seconds)
        if last.footprint.step_seconds is None:
            return size
        steps_seconds = footprint.STEPS * last.footprint.step_seconds
        # Most of the rest may be for tracing, whatever the size.
        per_batch = (left_seconds - last.took_seconds + steps_seconds) / steps_seconds
        most = int(last.footprint.batch_size * per_batch)
        if most < size and most < _WORTH_IT * last.footprint.batch_size:
            return None
        return min(size, most)
