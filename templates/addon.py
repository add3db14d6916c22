"""Adds the four components to a TFX project: says what to change, or changes it."""

import ast
import contextlib
import dataclasses
import difflib
import pathlib
from collections.abc import Iterable

from tfx_perf import errors
from tfx_perf.templates import copying, training_step

_MODULE = "perf_components"
_NAMES = "perf_blessing, perf_nodes"


@dataclasses.dataclass(frozen=True)
class Addition:
    """What makes a project use tfx-perf.

    Attributes:
        project: the folder that paths are relative to.
        files: text of each new and changed file, by its path in the project; none if the project
            uses tfx-perf already.
        changed: path of the file that exists and changes; None if none does.
        kept: paths of what was added before, and stays as it is.
        notes: what is left to the user.
    """

    project: pathlib.Path
    files: dict[str, str]
    changed: str | None
    kept: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def new_files(self) -> list[str]:
        """Paths of the files that do not exist yet."""
        return [path for path in self.files if path != self.changed]

    def patch(self, paths: list[str] | None = None) -> str:
        """Returns a unified diff, for `patch -p1` or `git apply` in the project.

        Args:
            paths: of these files only; None for all.
        """
        return "".join(self._diff(path) for path in (self.files if paths is None else paths))

    def write(self, paths: list[str] | None = None) -> list[pathlib.Path]:
        """Writes the files and returns them.

        Args:
            paths: of these files only; None for all.
        """
        written = [self.project / path for path in (self.files if paths is None else paths)]
        for path in written:
            draft = path.with_name(f".{path.name}.draft")
            draft.write_text(self.files[str(path.relative_to(self.project))], encoding="utf-8")
            draft.replace(path)
        return written

    def _diff(self, path: str) -> str:
        existing = path == self.changed
        before = (self.project / path).read_text(encoding="utf-8") if existing else ""
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            self.files[path].splitlines(keepends=True),
            f"a/{path}" if existing else "/dev/null",
            f"b/{path}",
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def addition(target: pathlib.Path) -> Addition:
    """Returns what has to change in a project; what was added before stays as it is.

    Args:
        target: its folder, or the file that defines its pipeline.

    Raises:
        UserError: it has no pipeline that can be changed, or a module of its own has the name of
            one that would be added.
    """
    target = target.absolute()
    user = _module_user(target)
    step = None if user else training_step.find(target)
    path = user or step.path
    root = training_step.import_root(target, path)
    project = target if target.is_dir() else root
    wanted = {
        str((path.parent / name).relative_to(project)): text
        for name, text in copying.contents(copying.PERF_ADDON, pipeline_name="").items()
    }
    kept = [name for name in wanted if (project / name).exists()]
    files = {name: text for name, text in wanted.items() if name not in kept}
    _check_own(project / name for name in kept)
    changed = str(path.relative_to(project))
    if step is None:
        return Addition(project, files, changed=None, kept=(*kept, changed), notes=())
    package = ".".join(path.parent.relative_to(root).parts)
    module = f"from {package} import {_MODULE}" if package else f"import {_MODULE}"
    files[changed] = _changed(step, module)
    return Addition(project, files, changed=changed, kept=tuple(kept), notes=_notes(step))


def _module_user(target: pathlib.Path) -> pathlib.Path | None:
    """Returns the file that trains with what was added before."""
    for path in training_step.python_files(target):
        source = path.read_text(encoding="utf-8")
        if f"{_MODULE}.train" not in source:
            continue
        with contextlib.suppress(SyntaxError):  # which is said where the Trainer is sought
            calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
            if any(ast.unparse(call.func) == f"{_MODULE}.train" for call in calls):
                return path
    return None


def _check_own(paths: Iterable[pathlib.Path]) -> None:
    for path in paths:
        if path.suffix == ".py" and "tfx_perf" not in path.read_text(encoding="utf-8"):
            raise errors.UserError(
                "Expected a project without a module of that name. "
                f"Received: {path}, which is none of tfx-perf's. Rename it."
            )


def _notes(step: training_step.TrainingStep) -> tuple[str, ...]:
    notes = []
    if not step.pushers:
        notes.append("There is no Pusher: give perf_blessing to what pushes the model.")
    for pusher in step.pushers:
        if _has_infra_blessing(pusher):
            notes.append(
                f"Pusher at line {pusher.lineno} has an infra_blessing already and takes but one: "
                "decide whether it shall be perf_blessing."
            )
    return tuple(notes)


def _has_infra_blessing(pusher: ast.Call) -> bool:
    return any(keyword.arg == "infra_blessing" for keyword in pusher.keywords)


def _changed(step: training_step.TrainingStep, module: str) -> str:
    """Returns the text of the pipeline's file with every change in it."""
    edits: list[tuple[int, int, int, str]] = []  # line, first and last column, text

    def replace(node: ast.expr, text: str) -> None:
        edits.append((node.lineno, node.col_offset, node.end_col_offset, text))

    def insert(line: int, column: int, text: str) -> None:
        edits.append((line, column, column, text))

    lines = step.source.splitlines(keepends=True)
    assignment, listing = step.assignment, step.listing
    replace(assignment.targets[0], f"{step.trainer}, {_NAMES}")
    replace(assignment.value.func, f"{_MODULE}.train")
    if step.outermost is not assignment:  # under a condition: the names must exist without it
        column = step.outermost.col_offset
        insert(step.outermost.lineno, 0, f"{' ' * column}{_NAMES} = None, []\n")
    if isinstance(listing, ast.Name):
        insert(listing.end_lineno, listing.end_col_offset, ", *perf_nodes")
    else:
        owner = ast.unparse(listing.value.func.value)
        indent = " " * listing.col_offset
        insert(listing.end_lineno + 1, 0, f"{indent}{owner}.extend(perf_nodes)\n")
    for pusher in step.pushers:
        if _has_infra_blessing(pusher):
            continue
        last = (pusher.keywords or pusher.args)[-1]
        comma = ast.get_source_segment(step.source, pusher)[:-1].rstrip().endswith(",")
        if last.end_lineno < pusher.end_lineno:  # the parenthesis has a line of its own
            if not comma:
                insert(last.end_lineno, last.end_col_offset, ",")
            indent = " " * last.col_offset
            insert(pusher.end_lineno, 0, f"{indent}infra_blessing=perf_blessing,\n")
        else:
            separator = " " if comma else ", "
            insert(pusher.end_lineno, pusher.end_col_offset - 1,
                   f"{separator}infra_blessing=perf_blessing")  # fmt: skip
    insert(step.last_import_line + 1, 0, f"{module}\n")
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines.append("")
    for line, first, last, text in sorted(edits, reverse=True):
        raw = lines[line - 1].encode()  # ast counts bytes
        lines[line - 1] = (raw[:first] + text.encode() + raw[last:]).decode()
    result = "".join(lines)
    ast.parse(result, str(step.path))
    return result
