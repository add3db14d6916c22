"""The child's side of MemoryProfiler: the user's code up to its `fit`, and the measurements."""

import pathlib
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from tfx.utils import json_utils

from tfx_perf.components import trainer_args
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, interception
from tfx_perf.memory import footprint, largest_batch, profile, record
from tfx_perf.tf_internals import autograph
from tfx_perf.training.speedups import precision, xla

NO_FIT = "run_fn does not call Model.fit, and a custom training loop is not profiled"
"""Why there is no profile."""


class Module(NamedTuple):
    """The training module and its arguments; `inputs` are artifacts as JSON.

    `reserved_bytes` is the RAM that the tuned input takes.
    """

    inputs: str
    exec_properties: dict[str, Any]
    folder: str
    reserved_bytes: int


@autograph.sparing_libraries
def profile_module(*, module: Sequence[Any], example_count: int | None) -> str | None:
    """Profiles a `Module`'s `fit` from the progress in its folder on; returns why it cannot."""
    given = Module(*module)
    settings = PerfConfig.from_json(given.exec_properties["config"])
    place = pathlib.Path(given.folder, record.PROGRESS_FILE_NAME)
    known = record.ProfileProgress.read(place) if place.exists() else None
    with precision.policy(precision.fixed(settings.training.precision)):
        try:
            call = _capture_fit(given)
        except errors.MeasurementError as error:
            return str(error)
        try:
            profile.profile(
                call,
                settings=settings.memory,
                reserved_bytes=given.reserved_bytes,
                example_count=example_count,
                why_no_xla=xla.slow_on_cpus(call.model),
                known=known,
                watch=lambda reached: reached.write(place),
            )
        except errors.UserError as error:
            return str(error)
    return None


@autograph.sparing_libraries
def measure_footprint(*, module: Sequence[Any], batch_size: int, most: int) -> None:
    """Runs a `Module` up to its `fit` and trains the first steps on one batch.

    Larger batches follow, up to `most` examples, while they are quick and far from the limit.
    """
    given = Module(*module)
    settings = PerfConfig.from_json(given.exec_properties["config"])
    footprints: list[record.Footprint] = []

    def note(taken: record.Footprint) -> None:
        if taken.status != "not run":
            footprints.append(taken)
        taken.write(pathlib.Path(given.folder, footprint_file(taken.batch_size)))

    with precision.policy(precision.fixed(settings.training.precision)):
        meter = footprint.FootprintMeter(
            _capture_fit(given),
            max_utilization=settings.memory.max_device_utilization,
            reserved_bytes=given.reserved_bytes,
            note=note,
        )
        size: int | None = batch_size
        while size is not None:
            note(record.Footprint(batch_size=size, status="not run"))  # until the steps have ended
            note(meter.take(size).footprint)
            size = largest_batch.next_quick_size(footprints, most=most)


def footprint_file(batch_size: int | str) -> str:
    """Returns the name of the file for a batch size's `Footprint`; "*": the pattern of all."""
    return f"footprint-{batch_size}.json"


def _capture_fit(module: Module) -> interception.FitCall:
    """Returns the module's call of `fit`; a MeasurementError says why it makes none."""
    inputs = json_utils.loads(module.inputs)
    # Without the plan, the examples are the same, and do not wait until the whole split is loaded.
    inputs.pop(trainer_args.INPUT_PLAN_KEY, None)
    run = trainer_args.bound_run_fn(inputs, module.exec_properties, folder=module.folder)
    try:
        return interception.capture_fit(run)
    except errors.NoFitError as error:
        raise errors.MeasurementError(NO_FIT) from error
    except errors.UserError:
        raise
    except (Exception, SystemExit) as error:  # the training will fail with it, too
        if autograph.asks_for_conversion(error):
            raise
        traceback.print_exc()
        raise errors.MeasurementError(
            f"run_fn raised {errors.in_one_line(error)} before it called Model.fit"
        ) from error
