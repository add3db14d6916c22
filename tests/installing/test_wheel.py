"""The contents of a wheel."""

import pathlib
import zipfile

import pytest
import wheels

# Folders of the repository, and where a wheel has them.
_FOLDERS = {
    "tfx_perf": "tfx_perf",
    **{name: f"tfx_perf/{name}" for name in ("components", "kubeflow", "pipelines", "templates")},
}


@pytest.fixture(scope="module")
def packed(wheel: pathlib.Path) -> set[str]:
    """The names of its files, without its own metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def test_it_holds_every_file_of_the_packages_and_no_other(tmp_path, packed):
    tree = wheels.copy_of_the_tree(tmp_path)
    expected = {
        f"{target}/{path.relative_to(tree / folder)}"
        for folder, target in _FOLDERS.items()
        for path in (tree / folder).rglob("*")
        if path.is_file()
    }
    assert {name for name in packed if ".data/" not in name} == expected


def test_it_contains_the_files_that_are_read_before_installation(packed):
    folder = ".data/data/share/tfx-perf/"
    shared = {name.partition(folder)[2] for name in packed if folder in name}
    assert shared == {"constraints.txt", "requirements.lock"}
