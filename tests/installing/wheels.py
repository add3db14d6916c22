"""A wheel of the tree under test."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def copy_of_the_tree(destination: pathlib.Path) -> pathlib.Path:
    """Returns `destination` with what git has in it or would take, as a clone has it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, destination / name)
    return destination


def build(folder: pathlib.Path) -> pathlib.Path:
    """Returns a wheel of the tree, made in `folder`."""
    source = copy_of_the_tree(folder / "source")
    command = [
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", str(folder), str(source),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
