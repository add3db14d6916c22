"""Rules for every test: which are slow, and that none leaves anything behind."""

import fnmatch
import gc
import signal
import sys

import pytest

from tests import permutations
from tfx_perf import isolate
from tfx_perf.core import console

_OF_ONE_TEST = {"PYTEST_CURRENT_TEST", "KUBECONFIG"}


@pytest.hookimpl(tryfirst=True)  # before pytest looks at who is slow
def pytest_collection_modifyitems(items):
    """Marks as slow what `slow_where` names by the parameters in a test's id, and permutations."""
    for item in items:
        for marker in item.iter_markers("slow_where"):
            if any(fnmatch.fnmatch(item.callspec.id, pattern) for pattern in marker.args):
                item.add_marker("slow")
    permutations.mark_dropped(items)
    permutations.costly_first(items)


@pytest.fixture(autouse=True, scope="session")
def one_server_for_all_tests():
    """Keeps what differs from test to test from the server that children are forked from.

    With another environment there would be another server, which imports TFX for ten seconds.
    """
    own = isolate._environment

    def environment():
        return {name: value for name, value in own().items() if name not in _OF_ONE_TEST}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolate, "_environment", environment)
        yield


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_ends_what_tests_start():
    """Has processes heed SIGINT also where a shell runs the tests in the background.

    Such a shell has it ignored, which every process inherits that sets nothing else.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def quick_traces():
    """Spares each process the 20 s in which AutoGraph converts tf_keras itself.

    With the conversion, as users have it where theirs needs it, run those of the trainings of
    tests/training/test_loop.py that are slow.
    """
    from tfx_perf.tf_internals import autograph

    with autograph.libraries_unconverted():
        yield


@pytest.fixture(autouse=True)
def no_seed_is_left():
    """Takes back a global seed, as OptimizedTrainer's `seed` sets it for the whole process.

    It would fix the order of every shuffled dataset that a later test makes.
    """
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and sys.modules["tensorflow.python.eager.context"].global_seed() is not None:
        tensorflow.random.set_seed(None)


@pytest.fixture(autouse=True)
def nothing_is_said_at_the_end():
    """Keeps what components of a test have found from standing below pytest's own last line."""
    yield
    console._LAST_WORDS.clear()


@pytest.fixture(autouse=True, scope="module")
def no_heap_is_left():
    """Keeps the collector from what a module leaves behind.

    Traced functions are millions of objects; a full collection, of which there are many, would
    visit them for seconds until the end of the session. Nothing is collected before, because on
    TF 2.16 the end of an iterator may wait a minute for autotune's thread.
    """
    yield
    gc.freeze()
