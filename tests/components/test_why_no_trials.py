"""Workers that try no plans say why, and what would have them try."""

import pytest

from tfx_perf.components.optimized_trainer import worker_training
from tfx_perf.components.optimized_trainer.known_plan import KnownPlan
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.training.trials.choice import plain


@pytest.mark.parametrize(
    ("restarts", "too_short", "folder", "words"),
    [
        (1, "", "/a/folder", ()),
        (0, "", "/a/folder", ("distribution.restarts=0", "set it to 1")),
        (1, "", None, ("no folder is known", "set training.checkpoint_folder")),
        (0, "it takes 1 s", None, ("it takes 1 s; schedule.planned_runs",)),
    ],
)
def test_each_cause_has_its_own_sentence_and_what_to_do(restarts, too_short, folder, words):
    said = worker_training._why_no_trials(
        DistributionSettings(workers=2, restarts=restarts),
        KnownPlan(too_short=plain(too_short) if too_short else None),
        checkpoint_folder=folder,
    )
    assert bool(said) == bool(words)
    for each in words:
        assert each in said
