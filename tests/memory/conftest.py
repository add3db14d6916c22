import pytest

from tfx_perf.tf_internals import autograph


@pytest.fixture(autouse=True, scope="module")
def quick_traces():
    with autograph.libraries_unconverted():
        yield
