import importlib

import pytest


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    """One of the two Keras lines; `tf.keras` may be either."""
    return importlib.import_module(request.param)
