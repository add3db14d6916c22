import pytest


@pytest.fixture(autouse=True, scope="module")
def all_traces_are_quick(quick_traces):
    """See `quick_traces`."""
