"""Adds the four components to a TFX project: shows the changes, or makes them."""

import ast
import contextlib
import dataclasses
import difflib
import io
import pathlib
import re
from collections.abc import Iterable

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, storage
from tfx_perf.templates import copying, project_scan

_MODULE = "perf_components"
_NAMES = "perf_blessing, perf_nodes"
_Placed = ast.stmt | ast.expr | ast.keyword  # nodes with a position in the text


@dataclasses.dataclass(frozen=True)
class Addition:
    """Changes that make a project use tfx-perf.

    Attributes:
        files: text of each new and changed file, by its path in the project; none if the project
            uses tfx-perf already.
        changed: path of the existing file to change; None if there is none.
        kept: paths of earlier additions, which stay as they are.
        notes: changes that the user still has to make, and warnings.
        encoding: of the file to change; the others are in UTF-8.
    """

    project: pathlib.Path
    files: dict[str, str]
    changed: str | None
    kept: tuple[str, ...]
    notes: tuple[str, ...]
    encoding: str = "utf-8"

    @property
    def new_files(self) -> list[str]:
        """Paths of the files that do not exist yet."""
        return [path for path in self.files if path != self.changed]

    def patch(self, paths: Iterable[str] | None = None) -> str:
        """Returns a unified diff of some or all files, for `patch -p1` in the project."""
        return "".join(map(self._diff, self.files if paths is None else paths))

    def write(self) -> None:
        """Writes the files."""
        for path in self.files:
            storage.write_bytes(self.project / path, self._content(path))

    def _content(self, path: str) -> bytes:
        return self.files[path].encode(self.encoding if path == self.changed else "utf-8")

    def _diff(self, path: str) -> str:
        existing = path == self.changed
        before = (self.project / path).read_bytes() if existing else b""
        # Decoded without `-sig`, the text keeps its byte order mark, as `git apply` needs it.
        encoding = self.encoding.removesuffix("-sig") if existing else "utf-8"
        lines = difflib.unified_diff(
            _lines(before.decode(encoding)),
            _lines(self._content(path).decode(encoding)),
            f"a/{path}" if existing else "/dev/null",
            f"b/{path}",
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def _lines(text: str) -> list[str]:
    """Returns lines as git counts them: only a line feed ends one."""
    return list(io.StringIO(text, newline="\n"))


def addition(target: pathlib.Path) -> Addition:
    """Returns the changes to a project, given by its folder, pipeline file, or `FILE:LINE`."""
    target, line = target.absolute(), None
    if match := re.fullmatch(r"(.*\.py):(\d+)", str(target)):
        target, line = pathlib.Path(match[1]), int(match[2])
    user = _module_user(target)
    step = None if user else project_scan.find(target, line=line)
    path = user or step.source.path
    root = project_scan.import_root(target, path)
    project = target if target.is_dir() else root
    wanted = {
        str((path.parent / name).relative_to(project)): text
        for name, text in copying.contents(copying.PERF_ADDON, pipeline_name="").items()
    }
    present = [name for name in wanted if (project / name).exists()]
    files = {name: text for name, text in wanted.items() if name not in present}
    _check_own(project / name for name in present)
    changed = str(path.relative_to(project))
    if step is None:
        return Addition(project, files, changed=None, kept=(*present, changed), notes=())
    package = ".".join(path.parent.relative_to(root).parts)
    module = f"from {package} import {_MODULE}" if package else f"import {_MODULE}"
    files[changed] = _edit(step, module)
    added = Addition(
        project, files, changed, tuple(present), notes=_notes(step), encoding=step.source.encoding
    )
    return dataclasses.replace(added, notes=(*added.notes, *_encoding_notes(added)))


def _module_user(target: pathlib.Path) -> pathlib.Path | None:
    """Returns the file that already calls `perf_components.train`; None if there is none."""
    for source in project_scan.sources(target):
        if f"{_MODULE}.train" not in source.text:
            continue
        with contextlib.suppress(SyntaxError):  # reported by `project_scan.find`
            nodes = ast.walk(ast.parse(source.text))
            calls = (node for node in nodes if isinstance(node, ast.Call))
            if any(ast.unparse(call.func) == f"{_MODULE}.train" for call in calls):
                return source.path
    return None


def _check_own(paths: Iterable[pathlib.Path]) -> None:
    for path in paths:
        if path.suffix == ".py" and b"tfx_perf" not in path.read_bytes():
            raise errors.UserError(
                "Expected a project without a module of that name. "
                f"Received: {path}, which is not from tfx-perf. Rename it."
            )
        if path.suffix == ".yaml":
            _check_settings(path)


def _check_settings(path: pathlib.Path) -> None:
    try:
        PerfConfig.from_yaml(path)
    except errors.UserError as error:
        raise errors.UserError(
            f"Expected no {path.name}, or one with tfx-perf's settings. Received: {path}. "
            f"Rename it, or correct it: {error}"
        ) from error


def _notes(step: project_scan.TrainingStep) -> tuple[str, ...]:
    notes = []
    if not step.pushers:
        notes.append("There is no Pusher: pass perf_blessing to the component that pushes.")
    for pusher in step.pushers:
        if _has_infra_blessing(pusher):
            notes.append(
                f"Pusher at line {pusher.lineno} has an infra_blessing and accepts only one. "
                "The gate stops no push until you pass perf_blessing to Pusher, and the other one "
                f"to PerfEvaluator in {_MODULE}.py as its infra_blessing."
            )
    return tuple(notes)


def _encoding_notes(added: Addition) -> tuple[str, ...]:
    patch = added.patch([added.changed])
    if patch.encode() == patch.encode(added.encoding.removesuffix("-sig")):
        return ()
    return (
        f"{added.changed} is in {added.encoding} and the patch is shown in UTF-8: "
        "`git apply` does not take it, `tfx-perf addon --apply` changes the file.",
    )


def _has_infra_blessing(pusher: ast.Call) -> bool:
    return any(keyword.arg == "infra_blessing" for keyword in pusher.keywords)


def _edit(step: project_scan.TrainingStep, module: str) -> str:
    edits: list[tuple[int, int, int, str]] = []  # line, first and last column, text
    lines = project_scan.lines_of(step.source.text)
    line_end = re.search(r"\r\n?|\n|$", step.source.text).group() or "\n"

    def replace(node: ast.expr, text: str) -> None:
        edits.append((node.lineno, node.col_offset, node.end_col_offset, text))

    def insert(line: int, column: int, text: str) -> None:
        edits.append((line, column, column, text))

    def insert_line(line: int, text: str, like: _Placed | None = None) -> None:
        indent = _indent(lines, like) if like else ""
        insert(line, 0, f"{indent}{text}{line_end}")

    assignment, listing = step.assignment, step.listing
    replace(assignment.targets[0], f"{step.trainer}, {_NAMES}")
    replace(step.call.func, f"{_MODULE}.train")
    if step.naming is not None:  # `train` returns a tuple: `with_id` moves to its own line
        end = step.call.end_col_offset
        edits.append((step.naming.end_lineno, end, step.naming.end_col_offset, ""))
        named = ast.unparse(ast.Call(ast.Name("with_id"), step.naming.args, step.naming.keywords))
        insert_line(assignment.end_lineno + 1, f"{step.trainer}.{named}", assignment)
    if step.outermost is not assignment:  # conditional: the names must always exist
        insert_line(step.outermost.lineno, f"{_NAMES} = None, []", step.outermost)
    if isinstance(listing, ast.Name):
        insert(listing.end_lineno, listing.end_col_offset, ", *perf_nodes")
    else:
        owner = project_scan.grown_list(listing.value)
        insert_line(listing.end_lineno + 1, f"{owner}.extend(perf_nodes)", listing)
    for pusher in step.pushers:
        if _has_infra_blessing(pusher):
            continue
        last = (pusher.keywords or pusher.args)[-1]
        comma = "," in _after(lines, last, pusher)
        if last.end_lineno < pusher.end_lineno:  # the parenthesis is on its own line
            if not comma:
                insert(last.end_lineno, last.end_col_offset, ",")
            insert_line(pusher.end_lineno, "infra_blessing=perf_blessing,", last)
        else:
            separator = " " if comma else ", "
            insert(pusher.end_lineno, pusher.end_col_offset - 1,
                   f"{separator}infra_blessing=perf_blessing")  # fmt: skip
    insert_line(step.last_import_line + 1, module)
    return _apply_edits(step.source.path, lines, edits, line_end)


def _indent(lines: list[str], node: _Placed) -> str:
    """Returns white space as wide as the text before a node; tabs stay tabs."""
    before = lines[node.lineno - 1].encode()[: node.col_offset].decode()  # ast counts bytes
    return re.sub(r"[^\t]", " ", before.rpartition("\f")[2])  # a form feed restarts the count


def _after(lines: list[str], last: ast.expr | ast.keyword, call: ast.Call) -> str:
    """Returns the text between a call's last argument and its end, without comments."""
    rest = lines[last.end_lineno - 1 : call.end_lineno]
    rest[-1] = rest[-1].encode()[: call.end_col_offset].decode()
    rest[0] = rest[0].encode()[last.end_col_offset :].decode()
    return "".join(line.partition("#")[0] for line in rest)


def _apply_edits(
    path: pathlib.Path, lines: list[str], edits: list[tuple[int, int, int, str]], line_end: str
) -> str:
    lines = [*lines, ""]
    if not lines[-2].endswith(("\n", "\r")):
        lines[-2] += line_end
    for line, first, last, text in sorted(edits, reverse=True):
        raw = lines[line - 1].encode()
        lines[line - 1] = (raw[:first] + text.encode() + raw[last:]).decode()
    result = "".join(lines)
    try:
        ast.parse(result, str(path))
    except SyntaxError as error:
        raise errors.UserError(
            "Expected a pipeline that can be changed line by line. "
            f"Received: {path}, wrong if changed: {(error.text or '').strip()} ({error.msg}). "
            "Put each import, component and argument on separate lines."
        ) from error
    return result
