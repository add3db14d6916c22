"""What training takes at a batch size, with the plan that the module trains with.

On a CPU the allocator counts only a part: the kernels' scratch, XLA's compiler, fragmentation and
what `malloc` keeps come on top. So there the growth of the process counts, which must be one of its
own. Pages of files do not: libraries are shared, and the system takes pages back.
"""

import functools
import gc
import time
from collections.abc import Callable

import tensorflow as tf

from tfx_perf.core import errors, formatting, interception, periodic
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches, peak
from tfx_perf.memory.record import Footprint
from tfx_perf.tf_internals import autograph

_FITS = (1, 1, 2)
STEPS = sum(_FITS)
"""So many are trained, the first of which is traced."""

_SAMPLING_SECONDS = 0.01
_CLEARLY = 1.5  # times the limit, is more than that


class FootprintMeter:
    """Trains the first steps of a `fit` at a batch size, and tells what that took.

    The model trains as it was compiled; its weights change, and what a batch leaves in memory
    counts for the next one. At clearly more than `max_utilization` (0-1) of the available memory of
    a CPU, a thread calls `stop`, which has to end the process, before the system ends another one.
    """

    def __init__(
        self,
        call: interception.FitCall,
        *,
        batch_size: int | None,
        max_utilization: float,
        stop: Callable[[Footprint], None],
    ) -> None:
        """Notes the memory from which growth counts; `batch_size` None stands for the data's own.

        UserError: the data cannot be rebatched.
        """
        self._began = time.perf_counter()
        self._call, self._stop = call, stop
        self._dataset = batches.dataset_of(call)
        self.batch_size = batch_size or batches.batch_size_of(batches.first_batch(self._dataset))
        gc.collect()
        host.return_freed_memory()
        self._limit_bytes = devices.memory_limit(max_utilization=max_utilization).bytes
        self._before = host.resident_memory()
        # A process that is let go on takes memory from others.
        available_bytes = self._limit_bytes / max_utilization
        self._ceiling_bytes = min(
            _CLEARLY * self._limit_bytes, (self._limit_bytes + available_bytes) / 2
        )
        self._device = devices.allocator_device()
        self._sampled_bytes = 0

    def take(self, batch_size: int) -> Footprint:
        """Returns the footprint of a batch size; the set-up counts as time of the first one."""
        on_cpu = self._device.startswith("CPU")
        ended = functools.partial(Footprint, batch_size=batch_size, limit_bytes=self._limit_bytes)
        self._sampled_bytes = 0
        host.reset_resident_peak()
        if not on_cpu:
            tf.config.experimental.reset_memory_stats(self._device)
        look = functools.partial(self._look, ended) if on_cpu else lambda: None
        try:
            with periodic.calling(look, seconds=_SAMPLING_SECONDS):
                batch = batches.batch_of(self._dataset, batch_size)
                fit_seconds = []
                for steps in _FITS:
                    fit_began = time.perf_counter()
                    peak.run_steps(self._call, batch, steps=steps, copied=True)
                    fit_seconds.append(time.perf_counter() - fit_began)
            # The rest of a `fit`, in both of them, may take far longer than a step.
            step_seconds = max(0.0, fit_seconds[2] - fit_seconds[1])
            look()
        except (tf.errors.ResourceExhaustedError, MemoryError):
            return ended(status="out of memory", reason="out of device memory")
        except Exception as error:  # of the user's code, perhaps at this batch size only
            if autograph.asks_for_conversion(error):
                raise
            return ended(status="failed", reason=f"the step raised {errors.in_one_line(error)}")
        if on_cpu:
            taken_bytes = max(self._sampled_bytes, self._peak_growth_bytes())
        else:
            taken_bytes = tf.config.experimental.get_memory_info(self._device)["peak"]
        began, self._began = self._began, time.perf_counter()
        seconds = self._began - began
        return ended(taken_bytes=taken_bytes, seconds=seconds, step_seconds=step_seconds)

    def _look(self, ended: Callable[..., Footprint]) -> None:
        grown_bytes = host.anonymous_memory_bytes() - self._before.anonymous_bytes
        self._sampled_bytes = taken_bytes = max(self._sampled_bytes, grown_bytes)
        if taken_bytes > self._ceiling_bytes:
            reason = (
                f"stopped at {formatting.format_bytes(taken_bytes)}, over the limit of "
                f"{formatting.format_bytes(self._limit_bytes)}"
            )
            self._stop(ended(status="out of memory", taken_bytes=taken_bytes, reason=reason))

    def _peak_growth_bytes(self) -> int:
        """Returns what the kernel has seen, also between samples; it counts pages of files."""
        file_bytes = max(self._before.file_bytes, host.resident_memory().file_bytes)
        return (host.resident_peak_bytes() or 0) - self._before.anonymous_bytes - file_bytes
