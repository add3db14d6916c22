"""Finds where a TFX project trains and pushes, by its syntax; nothing is imported or run."""

import ast
import dataclasses
import pathlib
import re
from collections.abc import Iterator

from tfx_perf import errors

_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"}


@dataclasses.dataclass(frozen=True)
class TrainingStep:
    """The places in one file that have to change.

    Attributes:
        path: the file.
        source: its text.
        assignment: `trainer = Trainer(...)`.
        outermost: the statement of the function's own body that holds the assignment; the same
            where that is not under a condition.
        listing: where the trainer goes into the list of components: the statement that appends
            it, or its name in a list.
        pushers: calls of Pusher.
        last_import_line: number of the line after which an import may stand, from 1.
    """

    path: pathlib.Path
    source: str
    assignment: ast.Assign
    outermost: ast.stmt
    listing: ast.stmt | ast.Name
    pushers: tuple[ast.Call, ...]
    last_import_line: int

    @property
    def trainer(self) -> str:
        """The name that the trainer has."""
        return self.assignment.targets[0].id


def find(project: pathlib.Path) -> TrainingStep:
    """Returns the training step of a project.

    Args:
        project: its folder, or the file that defines the pipeline.

    Raises:
        UserError: there is none, or more than one, or one that no rule here covers.
    """
    if not project.exists():
        raise errors.UserError(
            f"Expected a TFX project or its pipeline's file. Received: project={project}, "
            "which does not exist."
        )
    found = []
    for path in python_files(project):
        source = path.read_text(encoding="utf-8")
        if "Trainer" in source:
            module = _parsed(path, source)
            found += [(path, source, module, assignment) for assignment in _trainers(module)]
    if not found:
        raise errors.UserError(
            "Expected a pipeline that assigns a Trainer, e.g. trainer = Trainer(...). "
            f"Received: project={project}, in which there is none."
        )
    if len(found) > 1:
        places = ", ".join(f"{path}:{assignment.lineno}" for path, _, _, assignment in found)
        raise errors.UserError(
            f"Expected one Trainer. Received: {places}. Name the file of the one that you mean."
        )
    return _step(*found[0])


def import_root(project: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Returns the folder from which a project imports its own modules.

    That is the project's folder, even if it is a package (TFX's templates are, and do not import
    it), unless some module imports from it by its name. For a file, the packages decide.

    Args:
        project: its folder, or a file.
        path: the pipeline's file.
    """
    if project.is_dir():
        by_name = re.compile(rf"^\s*(?:from|import)\s+{re.escape(project.name)}\b", re.MULTILINE)
        sources = (file.read_text(encoding="utf-8") for file in python_files(project))
        return project.parent if any(map(by_name.search, sources)) else project
    folder = path.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def python_files(project: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a project's own modules, sorted.

    Args:
        project: its folder, or a file, which is then the only one.
    """
    if project.is_file():
        yield project
        return
    for path in sorted(project.rglob("*.py")):
        parts = path.relative_to(project).parts
        if not any(part in _SKIPPED or part.startswith(".") for part in parts):
            yield path


def _parsed(path: pathlib.Path, source: str) -> ast.Module:
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        raise errors.UserError(
            f"Expected Python. Received: {path}:{error.lineno} ({error.msg})."
        ) from error


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_call_of(node: ast.AST, name: str) -> bool:
    """Returns whether a node calls TFX's own component, not that of a cloud."""
    if not isinstance(node, ast.Call):
        return False
    callee = _dotted(node.func)
    return callee.split(".")[-1] == name and "google_cloud" not in callee


def _trainers(module: ast.Module) -> list[ast.Assign]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and _is_call_of(node.value, "Trainer")
    ]


def _step(
    path: pathlib.Path, source: str, module: ast.Module, assignment: ast.Assign
) -> TrainingStep:
    scope = _scope(module, assignment)
    call = assignment.value
    given = {keyword.arg for keyword in call.keywords}
    if call.args or "custom_executor_spec" in given:
        what = "custom_executor_spec" if "custom_executor_spec" in given else "one without a name"
        raise errors.UserError(
            "Expected a Trainer with named arguments and TFX's own executor. "
            f"Received: {what} at {path}:{call.lineno}."
        )
    name = assignment.targets[0].id
    imports = [node for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return TrainingStep(
        path=path,
        source=source,
        assignment=assignment,
        outermost=next(stmt for stmt in scope.body if _holds(stmt, assignment)),
        listing=_listing(scope, name, path),
        pushers=tuple(node for node in ast.walk(scope) if _is_call_of(node, "Pusher")),
        last_import_line=max((node.end_lineno for node in imports), default=0),
    )


def _holds(node: ast.AST, wanted: ast.AST) -> bool:
    return node.lineno <= wanted.lineno and wanted.end_lineno <= node.end_lineno


def _scope(module: ast.Module, assignment: ast.Assign) -> ast.Module | ast.FunctionDef:
    functions = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and _holds(node, assignment)
    ]
    return max(functions, key=lambda node: node.lineno, default=module)


def _listing(
    scope: ast.Module | ast.FunctionDef, name: str, path: pathlib.Path
) -> ast.stmt | ast.Name:
    for node in ast.walk(scope):
        if isinstance(node, ast.List):
            for item in node.elts:
                if isinstance(item, ast.Name) and item.id == name:
                    return item
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "append"
                and [_dotted(argument) for argument in call.args] == [name]
            ):
                return node
    raise errors.UserError(
        f"Expected a pipeline that contains its Trainer. Received: {path}, in which no list of "
        f"components takes {name}. Add it first (TFX's templates have it in a comment)."
    )
