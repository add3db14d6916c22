"""A wheel of the tree under test."""

import os
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


def environment(programs: pathlib.Path, *left_out: str) -> dict[str, str]:
    """Returns the variables of somebody who has activated an environment.

    Args:
        programs: its folder of programs.
        *left_out: beginnings of the names of variables that it has not.
    """
    left_out = ("PYTHON", "VIRTUAL_ENV", *left_out)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(left_out)},
        "VIRTUAL_ENV": str(programs.parent),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }


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
