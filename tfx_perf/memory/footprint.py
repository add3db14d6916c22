"""What training takes at a batch size, with the plan that the module trains with.

On a CPU the allocator counts only a part: the kernels' scratch, XLA's compiler, fragmentation and
what `malloc` keeps come on top. So there the growth of the process counts, which must be one of its
own. Pages of files do not: libraries are shared, and the system takes pages back.
"""

import functools
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors, formatting, interception, periodic
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches, peak
from tfx_perf.memory.record import Footprint
from tfx_perf.tf_internals import autograph

STEPS = 3
"""So many are trained, the first of which is traced."""

_SAMPLING_SECONDS = 0.01
_CLEARLY = 1.5  # times the limit, is more than that


def footprints(
    call: interception.FitCall,
    *,
    batch_size: int | None,
    max_utilization: float,
    stop: Callable[[Footprint], None],
    larger: Callable[[Footprint], int | None] | None = None,
) -> Iterator[Footprint]:
    """Trains the first steps on a batch and yields what that took, then on a larger one.

    The model trains as it was compiled; its weights change. The first batch is of `batch_size`
    (None: the data's), and what it leaves in memory counts for the other, whose size `larger`
    returns. At clearly more than `max_utilization` (0-1) of the available memory of a CPU, a thread
    calls `stop`, which has to end the process, before the system ends another one. UserError: the
    data cannot be rebatched.
    """
    began = time.perf_counter()
    dataset = batches.dataset_of(call)
    size = batch_size or batches.batch_size_of(batches.first_batch(dataset))
    gc.collect()
    host.return_freed_memory()
    found = devices.memory_limit(max_utilization=max_utilization)
    before = host.resident_memory()
    # A process that is let go on takes memory from others.
    available_bytes = found.bytes / max_utilization
    ceiling_bytes = min(_CLEARLY * found.bytes, (found.bytes + available_bytes) / 2)
    take = functools.partial(
        _footprint,
        call,
        dataset,
        limit_bytes=found.bytes,
        before=before,
        ceiling_bytes=ceiling_bytes,
        stop=stop,
    )
    first = take(size, began=began)
    yield first
    other = larger(first) if larger else None
    if other is not None:
        yield take(other, began=time.perf_counter())


def _footprint(
    call: interception.FitCall,
    dataset: tf.data.Dataset,
    batch_size: int,
    *,
    limit_bytes: int,
    before: host.ResidentMemory,
    ceiling_bytes: float,
    stop: Callable[[Footprint], None],
    began: float,
) -> Footprint:
    device = devices.allocator_device()
    on_cpu = device.startswith("CPU")
    sampled_bytes = 0

    def ended(**fields: Any) -> Footprint:
        return Footprint(batch_size=batch_size, limit_bytes=limit_bytes, **fields)

    def look() -> None:
        nonlocal sampled_bytes
        grown_bytes = host.anonymous_memory_bytes() - before.anonymous_bytes
        sampled_bytes = max(sampled_bytes, grown_bytes)
        if on_cpu and sampled_bytes > ceiling_bytes:
            reason = (
                f"stopped at {formatting.format_bytes(sampled_bytes)}, over the limit of "
                f"{formatting.format_bytes(limit_bytes)}"
            )
            stop(ended(status="out of memory", taken_bytes=sampled_bytes, reason=reason))

    host.reset_resident_peak()
    if not on_cpu:
        tf.config.experimental.reset_memory_stats(device)
    try:
        with periodic.calling(look, seconds=_SAMPLING_SECONDS):
            batch = batches.batch_of(dataset, batch_size)
            peak.run_steps(call, batch, steps=1, copied=True)
            traced = time.perf_counter()
            peak.run_steps(call, batch, steps=STEPS - 1, copied=True)
            step_seconds = (time.perf_counter() - traced) / (STEPS - 1)
        look()
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return ended(status="out of memory", reason="out of device memory")
    except Exception as error:  # of the user's code, perhaps at this batch size only
        if autograph.asks_for_conversion(error):
            raise
        return ended(status="failed", reason=f"the step raised {errors.in_one_line(error)}")
    if on_cpu:
        # The kernel sees what is shorter than the samples, but does not tell pages of files apart.
        file_bytes = max(before.file_bytes, host.resident_memory().file_bytes)
        kernel_bytes = (host.resident_peak_bytes() or 0) - before.anonymous_bytes - file_bytes
        taken_bytes = max(sampled_bytes, kernel_bytes)
    else:
        taken_bytes = tf.config.experimental.get_memory_info(device)["peak"]
    seconds = time.perf_counter() - began
    return ended(taken_bytes=taken_bytes, seconds=seconds, step_seconds=step_seconds)
