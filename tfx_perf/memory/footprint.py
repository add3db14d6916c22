"""Memory that training takes at a batch size: the allocator's peak, and the process's growth.

On a CPU, the allocator counts only a part: the kernels' scratch, XLA's compiler, fragmentation and
what `malloc` keeps come on top. So there the growth of the process is the footprint, which needs a
separate process. Pages of files do not count: libraries are shared, and the system reclaims pages.
"""

import functools
import gc
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf.core import errors, formatting, interception, periodic
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches, peak
from tfx_perf.memory.largest_batch import STEPS
from tfx_perf.memory.record import Footprint
from tfx_perf.tf_internals import autograph
from tfx_perf.tf_internals.built_optimizer import build_before_trace

_SAMPLING_SECONDS = 0.01
_CLEARLY = 1.5  # times the limit: clearly more than it


class Measured(NamedTuple):
    """A footprint, and by how much the allocator's peak rose in each of a few steps.

    They differ because TensorFlow orders operations freely; there are none if a step failed.
    """

    footprint: Footprint
    batch_bytes: int | None
    rises_bytes: tuple[int, ...] = ()


class FootprintMeter:
    """Trains the first steps of a `fit` at a batch size, and measures what they take.

    The model trains as it is compiled now; its weights change, and memory that a batch leaves
    behind counts for the next one. At clearly more than `max_utilization` (0-1) of the available
    memory of a CPU, a thread calls `note` and ends the process, before the system kills another
    one. `dataset` and `batch_size` are those of `fit`, unshuffled.
    """

    def __init__(
        self,
        call: interception.FitCall,
        *,
        max_utilization: float,
        reserved_bytes: int = 0,
        note: Callable[[Footprint], None],
    ) -> None:
        """Records the memory from which growth counts; UserError if data cannot be rebatched."""
        self._began = time.perf_counter()
        self._call, self._note = call, note
        self.dataset = batches.dataset_of(call)
        self.batch_size = batches.batch_size_of(batches.first_batch(self.dataset))
        gc.collect()
        host.return_freed_memory()
        self.limit = devices.memory_limit(
            max_utilization=max_utilization, reserved_bytes=reserved_bytes
        )
        self._before = host.resident_memory()
        # A process that is allowed to continue takes memory from others.
        available_bytes = self.limit.bytes / max_utilization
        self._ceiling_bytes = min(
            _CLEARLY * self.limit.bytes, (self.limit.bytes + available_bytes) / 2
        )
        self._device = devices.allocator_device()
        self._sampled_bytes = 0

    def batch(self, size: int) -> Any:
        """Returns a batch of `size` of the data's examples."""
        return batches.batch_of(self.dataset, size)

    def take(self, batch_size: int, *, may_end: bool = True) -> Measured:
        """Measures a batch size; the setup counts as time of the first one.

        Unless it `may_end`, the process continues however much memory it takes.
        """
        on_cpu = self._device.startswith("CPU")
        ended = functools.partial(Footprint, batch_size=batch_size, limit_bytes=self.limit.bytes)
        self._sampled_bytes = 0
        host.reset_resident_peak()
        look = functools.partial(self._look, ended, may_end) if on_cpu else lambda: None
        watch, batch_bytes = peak.StepWatch(self._device), None
        try:
            with periodic.calling(look, seconds=_SAMPLING_SECONDS):
                batch = self.batch(batch_size)
                batch_bytes = batches.tensor_bytes(batch)
                gc.collect()
                build_before_trace(self._call.model)
                # XLA takes more memory if each step has its own tensors.
                copied = bool(self._call.model.jit_compile)
                peak.run_steps(self._call, batch, steps=STEPS, copied=copied, watch=watch)
            look()
        except (tf.errors.ResourceExhaustedError, MemoryError):
            reason = "out of device memory"
            return Measured(ended(status="out of memory", reason=reason), batch_bytes)
        except Exception as error:  # the user's code may fail at this batch size only
            if autograph.asks_for_conversion(error):
                raise
            reason = f"the step raised {errors.in_one_line(error)}"
            return Measured(ended(status="failed", reason=reason), batch_bytes)
        if on_cpu:
            taken_bytes = max(self._sampled_bytes, self._peak_growth_bytes())
        else:
            taken_bytes = max(watch.peaks_bytes)
        began, self._began = self._began, time.perf_counter()
        taken = ended(
            taken_bytes=taken_bytes,
            seconds=self._began - began,
            step_seconds=min(watch.seconds[1:]),
        )
        # Take the lowest, because a step's last tensors may not be freed yet when it is read.
        idle = min(watch.idle_bytes[1:])
        return Measured(taken, batch_bytes, tuple(each - idle for each in watch.peaks_bytes[1:]))

    def _look(self, ended: Callable[..., Footprint], may_end: bool) -> None:
        grown_bytes = host.anonymous_memory_bytes() - self._before.anonymous_bytes
        self._sampled_bytes = taken_bytes = max(self._sampled_bytes, grown_bytes)
        if may_end and taken_bytes > self._ceiling_bytes:
            reason = (
                f"stopped at {formatting.format_bytes(taken_bytes)}, over the limit of "
                f"{formatting.format_bytes(self.limit.bytes)}"
            )
            self._note(ended(status="out of memory", taken_bytes=taken_bytes, reason=reason))
            os._exit(0)

    def _peak_growth_bytes(self) -> int:
        """Returns the growth to the kernel's peak, which misses nothing but counts file pages."""
        file_bytes = max(self._before.file_bytes, host.resident_memory().file_bytes)
        return (host.resident_peak_bytes() or 0) - self._before.anonymous_bytes - file_bytes
