"""Workers that try no plans say why, and what would have them try."""

import pytest

from tfx_perf.components.optimized_trainer import worker_training
from tfx_perf.config.distribution import DistributionSettings


@pytest.mark.parametrize(
    ("restarts", "folder", "words"),
    [
        (1, "/a/folder", ()),
        (0, "/a/folder", ("distribution.restarts=0", "set it to 1")),
        (1, None, ("no folder is known", "set training.checkpoint_folder")),
    ],
)
def test_each_cause_has_its_own_sentence_and_what_to_do(restarts, folder, words):
    said = worker_training._why_no_trials(
        DistributionSettings(workers=2, restarts=restarts), checkpoint_folder=folder
    )
    assert bool(said) == bool(words)
    for each in words:
        assert each in said
