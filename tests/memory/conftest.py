import pytest

from tfx_perf.tf_internals import autograph


@pytest.fixture(autouse=True, scope="package")
def quick_traces():
    with autograph.tf_keras_unconverted():
        yield
