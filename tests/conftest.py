"""What holds for every test: none leaves a seed behind."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_seed_is_left():
    """Takes back a global seed, as OptimizedTrainer's `seed` sets it for the whole process.

    It would fix the order of every shuffled dataset that a later test makes.
    """
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and sys.modules["tensorflow.python.eager.context"].global_seed() is not None:
        tensorflow.random.set_seed(None)
