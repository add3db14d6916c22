import pathlib

import pytest
import wheels


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A wheel of the tree under test."""
    return wheels.build(tmp_path_factory.mktemp("wheel"))
