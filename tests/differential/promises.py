"""What of a case must be as in Keras' `fit`: exactly, nearly, or not at all, and where it says so.

This is the only place that lets a difference pass.
"""

import math
import re
from typing import Any

from .cases import OWN_STEP, Case
from .interruption import IN_DATA

EXACT, NEAR, FREE = "exact", "near", "free"

# docs/numerics.md: "no variable differs by more than 1e-5 of its largest magnitude".
RTOL = {"float32": 1e-5, "float64": 1e-5, "mixed_bfloat16": 20 * 2**-8}


def numbers(case: Case, *, plan_used: str, resumed: bool) -> tuple[str, str]:
    """Returns how near the trained numbers must be to Keras', and why.

    Args:
        case: the case.
        plan_used: the plan in words, as the record has it; plain where the plan was refused.
        resumed: whether a checkpoint was gone on from.
    """
    # Of two fits the record has one; the other may have taken the plan.
    plan = dict(case.plan) if plan_used != "Keras fit" or case.fits == "two" else {}
    draws = {"dropout", "seeded", "noise"} & set(case.parts)
    if resumed:
        reason = inexact_resumption(case, plan_used=plan_used)
        if reason:
            return FREE, reason
    sliced = "micro_batches" in plan or case.interruption == "oom_in_step"
    if draws and ("xla" in plan or "xla_loop" in plan or sliced):
        return FREE, "numerics.md: random masks under XLA and of micro-batches are others"
    legacy = {"dropout", "seeded"} & draws and case.package == "tf_keras"
    if legacy and plan:
        return FREE, "reliability.md: dropout of tf_keras draws from generators under a plan"
    counts_calls = {"counter", "held"} & set(case.parts)
    if sliced and (counts_calls or "batch_norm" in case.parts):
        return FREE, "numerics.md: a layer's own variables change with each micro-batch"
    if plan and case.may_run_out and case.steps_per_execution > 1 and counts_calls:
        return FREE, "Keras' fit leaves out the step that finds no data: in calls of several alone"
    is_fraction = case.may_run_out and case.steps != case.steps_per_epoch
    if is_fraction and case.package == "keras" and "random" in case.stages:
        return FREE, "numerics.md: data that draw random numbers with a seed"
    if plan or sliced:
        return NEAR, "numerics.md: 1e-5 of the largest magnitude"
    return EXACT, ""


def allowed_difference(case: Case, name: str, *, plan_used: str) -> float:
    """Returns by how much of its largest magnitude a variable, or a log, may differ."""
    if "batch_norm" in case.parts and re.search("hidden[/_]bias|moving_mean", name):
        return math.inf  # numerics.md: gradients that are zero in theory
    rounds = {"xla", "xla_loop", "fused_update"} & {option for option, _ in case.plan}
    is_adaptive = case.optimizer != "SGD"
    if rounds and is_adaptive and "batch_norm" in case.parts and name.startswith("val_"):
        return math.inf  # numerics.md: evaluation differs with them
    # numerics.md says it of 20 steps; further on, differences add up.
    rtol = RTOL[case.dtype] * max(1.0, case.step_count / 20)
    # numerics.md: "with beta_2 = 0.999 the first second moments are 1.3e-5 smaller"
    is_second_moment = "velocity" in name or re.search(r"[:/]v/", name)
    return 2 * rtol if is_second_moment and "fused update" in plan_used else rtol


def inexact_resumption(case: Case, *, plan_used: str) -> str:
    """Returns the sentence of reliability.md that lets a resumed training differ; else nothing."""
    draws = {"dropout", "seeded"} & set(case.parts)
    if order_is_free(case, resumed=True):
        return "Data without a seed, of a later fit, or of a stream that was read already"
    if case.validation == "shuffled":
        return "Validation data that are shuffled"
    if draws and case.package == "tf_keras" and plan_used == "Keras fit":
        return "Dropout of tf_keras under Keras fit"
    if draws and case.package == "tf_keras" and case.model in OWN_STEP:
        return "Dropout of tf_keras under Keras fit"
    return ""


def order_is_free(case: Case, *, resumed: bool) -> bool:
    """Whether the rows may come in another order."""
    in_process = case.interruption in (*IN_DATA, "oom_in_step")
    later_fits = in_process and case.fits != "one" and case.order in ("seeded", "small")
    is_stream = in_process and case.source == "once"
    return resumed and (case.order == "unseeded" or later_fits or is_stream)


def seen_when_resumed(case: Case, seen: dict, found: dict) -> tuple[dict, dict]:
    """Returns what callbacks must have seen in Keras' `fit`, and what they saw in the rerun.

    reliability.md: "Callbacks see on_train_begin and the batches of the running epoch that are done
    already (with the logs of the checkpoint)". What else was seen was seen by another process,
    so that the rerun has the end of it; or before this one went back, so that it has more.
    """
    if case.fits != "one":
        return {}, {}
    parts = {name: (seen.get(name, []), values) for name, values in found.items()}
    parts = {name: _ends(one, other) for name, (one, other) in parts.items()}
    if "events" in found:
        hooks = [event[0] for event in found["events"]]
        last_begin = len(hooks) - 1 - hooks[::-1].index("train_begin")
        parts["events"] = _from_epoch(seen["events"], found["events"][last_begin:])
    pairs = list(parts.items())
    return {name: one for name, (one, _) in pairs}, {name: other for name, (_, other) in pairs}


def _ends(one: list[Any], other: list[Any]) -> tuple[list[Any], list[Any]]:
    count = min(len(one), len(other))
    return one[len(one) - count :], other[len(other) - count :]


def _from_epoch(events: list[Any], found: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the events from the running epoch on, its batches without their logs."""
    begun = next((event for event in found if event[0] == "epoch_begin"), None)
    if begun is None or begun not in events:
        return [], []
    ends = []
    for one in (events, found):
        kept = one[one.index(begun) :]
        hooks = [event[0] for event in kept]
        first = hooks.index("epoch_end") if "epoch_end" in hooks else len(kept)
        ends.append(
            [
                event[:-1] if index < first and event[0].startswith("train_batch") else event
                for index, event in enumerate(kept)
            ]
        )
    return ends[0], ends[1]


def file_is_comparable(case: Case, name: str, *, resumed: bool) -> bool:
    """Whether a file must be as in Keras' `fit`: not if a new training appends to an old one's."""
    return resumed or not case.interruption or name != "csv_append.csv"


def variable_is_comparable(case: Case, name: str) -> bool:
    """Whether a variable must be as in Keras' `fit`.

    Not what changes without data where these run out: it is chance whether Keras' `fit` counts the
    step for which there are none, or lets momenta decay in it.
    """
    return not (case.may_run_out and re.search("iteration|calls|/m/|momentum", name))


def may_have_more_slots(case: Case) -> bool:
    """Whether the optimizer may hold variables that it does not need.

    numerics.md: "slots for all trainable weights, also where an own `train_step` trains only some".
    """
    return case.model == "gan" and case.optimizer == "LossScale"


def may_train(error: str) -> bool:
    """Whether a training may go well that under Keras' `fit` ends with this error."""
    # All variables are there before `fit`, so that they can be saved.
    return "BackupAndRestore callback, you model must be built" in error
