"""What `template copy` does, for `tfx-perf` and for TFX's own command line."""

import dataclasses
import pathlib

from tfx_perf.templates import addon, copying


@dataclasses.dataclass(frozen=True)
class Copied:
    """What was written, and what is left to do.

    Attributes:
        files: that were written.
        patch: unified diff of a file that has to change; empty if none has.
        notes: for the user.
    """

    files: list[pathlib.Path]
    patch: str = ""
    notes: tuple[str, ...] = ()


def copy(name: str, *, pipeline_name: str, destination: pathlib.Path) -> Copied:
    """Copies a template: a new project, or new files in one that exists.

    Args:
        name: of the template.
        pipeline_name: of the new project's pipeline; an existing project keeps its own.
        destination: a folder that is free; for `perf-addon` that of the project.

    Raises:
        UserError: one of the three is wrong; nothing is written.
    """
    template = copying.named(name)
    if template is not copying.PERF_ADDON:
        return Copied(
            copying.copy_project(template, pipeline_name=pipeline_name, destination=destination)
        )
    added = addon.addition(destination)
    kept = (f"already added: {', '.join(added.kept)}",) if added.kept else ()
    return Copied(
        files=added.write(added.new_files),
        patch=added.patch([added.changed] if added.changed else []),
        notes=(*kept, *added.notes),
    )
