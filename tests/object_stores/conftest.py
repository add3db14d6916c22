"""The servers, installed once for all tests and started for each."""

import object_store
import pytest


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A folder with the drivers and the servers."""
    folder = tmp_path_factory.mktemp("object-stores")
    object_store.install(folder)
    return folder


@pytest.fixture(params=["s3", "gs"])
def store(request, packages):
    """The scheme of a store that is served, and the variables that lead a driver to it."""
    with object_store.serve(request.param, packages) as environment:
        yield request.param, environment
