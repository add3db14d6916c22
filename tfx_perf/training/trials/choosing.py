"""Chooses the plan for a `fit`; whatever goes wrong, it is plain `fit`."""

import logging
import time
from collections.abc import Callable, Sequence

from tfx_perf import fingerprint
from tfx_perf.config import PerfConfig
from tfx_perf.interception import FitCall
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.trials import choice
from tfx_perf.training.trials.equivalence import in_one_line
from tfx_perf.training.trials.fit_key import fit_key
from tfx_perf.training.trials.progress import TrialProgress
from tfx_perf.training.trials.trial_record import TrialRecord
from tfx_perf.training.trials.trials import Trials

_LOGGER = logging.getLogger(__name__)


def by_trials(
    call: FitCall,
    loop: Loop,
    *,
    settings: PerfConfig,
    watch: Callable[[TrialProgress], None] = lambda progress: None,
    known: Sequence[TrialRecord] = (),
) -> choice.PlanChoice:
    """Returns the plan that wins the trials, which run here.

    Args:
        call: the user's `fit`; its model is left as it was, but for the variables being there.
        loop: the loop that the plan will be used with.
        settings: the sections `training` and `compilation`.
        watch: see `Trials`.
        known: see `Trials`.
    """
    began = time.perf_counter()
    if not settings.training.trial_budget_seconds:
        return choice.plain("trials are off")
    reason = obstacle(call, loop)
    if reason:
        return choice.plain(reason, is_settled=True)
    try:
        key = fit_key(call, loop)
        found = Trials(call, loop, settings=settings, watch=watch, known=known).run()
    except Exception as error:  # the user's training must not depend on ours
        _LOGGER.warning("Trials failed; training with plain fit.", exc_info=True)
        return choice.plain(f"the trials failed: {in_one_line(error)}")
    return found.model_copy(
        update={"fit": key, "trial_time_seconds": time.perf_counter() - began}
    )


def as_given(call: FitCall, loop: Loop, given: choice.PlanChoice) -> choice.PlanChoice:
    """Returns a choice that was made before, if it holds for this `fit`, else plain `fit`.

    Args:
        call: the user's `fit`.
        loop: the loop that the plan will be used with.
        given: found in another process, or in a run before.
    """
    if not given.fit:  # plain fit, because none could be tried
        return given
    try:
        reason = obstacle(call, loop) or _mismatch(given.fit, fit_key(call, loop))
    except Exception as error:  # as above
        reason = in_one_line(error)
    if not reason:
        return given
    return choice.plain(reason).model_copy(
        update={"key": given.key, "trial_time_seconds": given.trial_time_seconds}
    )


def _mismatch(tried: dict[str, str], found: dict[str, str]) -> str | None:
    changes = fingerprint.differences(tried, found)
    return f"the plan is for another fit: {fingerprint.describe(changes)}" if changes else None
