"""What is added to a plan once the candidate is chosen: statistics, and the copy."""

import logging
import os
from collections.abc import Sequence

from tfx_perf import console
from tfx_perf.components.examples import parsers, sources
from tfx_perf.components.input_tuner import copying, statistics
from tfx_perf.input import apply, record
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import copy
from tfx_perf.input.proof import file_state

_COPY_FOLDER = "copy"

_LOGGER = logging.getLogger(__name__)


def with_statistics(
    plan: record.TuningRecord,
    source: source_lib.RecordSource,
    *,
    examples: sources.Examples,
    folder: str,
    seconds: float,
) -> record.TuningRecord:
    """Returns the plan with TFDV's statistics of the default's and the tuned output compared.

    Args:
        plan: the choice; the default needs no comparison.
        source: what was tuned.
        examples: the artifacts it was made from.
        folder: gets `statistics/default.pb` and `statistics/tuned.pb`.
        seconds: time for both.
    """
    if plan.chosen == record.DEFAULT:
        return plan
    console.set_status(f"comparing statistics of the default and {plan.chosen}")
    epoch = source.replace_options(num_epochs=1, shuffle=False, drop_final_batch=False)
    factory = apply.tuned_factory(
        source.default_factory, plan, parser_for=parsers.parser_for(examples)
    )
    found = statistics.compare(
        epoch.default(),
        factory(list(epoch.file_patterns), epoch.options, epoch.schema),
        folder=folder,
        seconds=seconds,
        schema=epoch.schema,
    )
    return plan.model_copy(update={"statistics": found})


def with_copy(
    plan: record.TuningRecord,
    source: source_lib.RecordSource,
    *,
    epochs: float | None,
    folder: str,
    beam_pipeline_args: Sequence[str],
) -> record.TuningRecord:
    """Returns the plan with an uncompressed copy, if that pays for itself; a failure costs only it.

    Args:
        plan: with its `copy_trial`.
        source: what was tuned.
        epochs: how long training is; None if that is not known, and then nothing is copied.
        folder: the copy is written into a folder in it.
        beam_pipeline_args: as TFX passes them to executors.
    """
    trial = plan.copy_trial
    if trial is None or not trial.worthwhile(epochs):
        return plan
    target = os.path.join(folder, _COPY_FOLDER)
    copied_state = file_state.digest(source.file_states)
    try:
        copying.write_copy(
            source.files,
            folder=target,
            shard_count=trial.shard_count,
            beam_pipeline_args=beam_pipeline_args,
        )
    except Exception:  # the plan is good without it
        _LOGGER.warning("The copy could not be written.", exc_info=True)
        return plan
    parameters = plan.parameters.model_copy(
        update=copy.of_files(source.files, files_state=copied_state, folder=target)
    )
    name = f"{plan.chosen}+copy"
    outcomes = tuple(
        outcome.model_copy(update={"name": name}) if outcome.name == plan.chosen else outcome
        for outcome in plan.outcomes
    )
    final = plan.final.model_copy(update={"candidate": name}) if plan.final else None
    reason = f"{plan.reason} {trial.verdict}"
    return plan.model_copy(
        update={
            "chosen": name,
            "reason": reason,
            "parameters": parameters,
            "outcomes": outcomes,
            "final": final,
        }
    )
