"""Finds where a TFX project trains and pushes, by its syntax; nothing is imported or run."""

import ast
import dataclasses
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator
from typing import TypeGuard, cast

from tfx_perf.core import errors

_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"}
_LOOPS = ast.For | ast.AsyncFor | ast.While

# Nodes that may be between a list and its holder: a variable, an argument or a return.
_THROUGH = (
    ast.List | ast.Tuple | ast.Dict | ast.Starred | ast.BinOp | ast.BoolOp | ast.IfExp
    | ast.NamedExpr
)  # fmt: skip
_THROUGH_CALLS = {"chain", "filter", "list", "tuple"}
_GROWING = {"append", "extend"}

# Holders of a list that are not variables.
_GIVEN = "components="
_RETURNED = "return"


@dataclasses.dataclass(frozen=True)
class Source:
    """A module's text with its own line ends; `utf-8-sig` if it has a byte order mark."""

    path: pathlib.Path
    text: str
    encoding: str


@dataclasses.dataclass(frozen=True)
class TrainingStep:
    """The places in one file that have to change.

    Attributes:
        assignment: `trainer = Trainer(...)`, perhaps followed by `.with_id(...)`.
        call: the `Trainer(...)` in the assignment.
        outermost: the statement directly in the function's body that contains the assignment; the
            assignment itself unless it is nested, e.g. in an `if`.
        listing: where the trainer is added to the components: the statement that appends it, or
            its name in a list.
        last_import_line: line after which an import can be inserted; 0: before the first line.
    """

    source: Source
    assignment: ast.Assign
    call: ast.Call
    outermost: ast.stmt
    listing: ast.Expr | ast.Name
    pushers: tuple[ast.Call, ...]
    last_import_line: int

    @property
    def naming(self) -> ast.Call | None:
        """`Trainer(...).with_id(...)`; None if the node keeps its class's name."""
        value = cast("ast.Call", self.assignment.value)
        return None if value is self.call else value

    @property
    def trainer(self) -> str:
        """The variable that holds the trainer."""
        return ast.unparse(self.assignment.targets[0])


def find(project: pathlib.Path, *, line: int | None = None) -> TrainingStep:
    """Returns a project's only training step, or the one at `line`; raises UserError otherwise."""
    if not project.exists():
        raise errors.UserError(
            f"Expected a TFX project or its pipeline's file. Received: project={project}, "
            "which does not exist."
        )
    trainers, called = [], []
    for source in sources(project):
        if "Trainer" in source.text:
            module = _parse(source)
            trainers += [(source, module, *trainer) for trainer in _trainers(module)]
            calls = (node for node in ast.walk(module) if _is_call_of(node, "Trainer"))
            called += [f"{source.path}:{call.lineno}" for call in calls]
    if called and not trainers:
        raise errors.UserError(
            "Expected a Trainer that is assigned to a name, with nothing after its parenthesis. "
            f"Received: {', '.join(called)}. Write trainer = Trainer(...), and any call on it, "
            "such as trainer.with_id(...), on its own line."
        )
    if not trainers:
        unread = "".join(
            f"; could not decode {path}"
            for path in _python_files(project)
            if b"Trainer" in path.read_bytes() and _read(path) is None
        )
        raise errors.UserError(
            "Expected a pipeline that assigns a Trainer, e.g. trainer = Trainer(...). "
            f"Received: project={project}, in which there is none{unread}.{_hint(project)}"
        )
    wanted = [trainer for trainer in trainers if line in (None, trainer[2].lineno)]
    if len(wanted) != 1:
        places = [f"{source.path}:{at.lineno}" for source, _, at, _ in trainers]
        raise errors.UserError(
            f"Expected one Trainer. Received: {', '.join(places)}. Choose one by its line: "
            f"tfx-perf addon {places[0]}."
        )
    return _step(*wanted[0])


def _hint(project: pathlib.Path) -> str:
    """Returns a hint for a project that already has OptimizedTrainer; empty for any other."""
    users = [source.path for source in sources(project) if "OptimizedTrainer(" in source.text]
    if not users:
        return ""
    has_gate = any("PerfEvaluator(" in source.text for source in sources(project))
    rest = "PerfEvaluator, too: nothing is missing" if has_gate else "no PerfEvaluator: add it"
    return f" {users[0]} has OptimizedTrainer, and {rest}."


def import_root(project: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Returns the folder from which a project imports its own modules.

    This is the project's folder, even if it is a package (TFX's templates are, but do not import
    it), unless a module imports it by name. For a file, it is the first parent that is no package.
    """
    if project.is_dir():
        by_name = re.compile(rf"^\s*(?:from|import)\s+{re.escape(project.name)}\b", re.MULTILINE)
        named = any(by_name.search(source.text) for source in sources(project))
        return project.parent if named else project
    folder = path.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def sources(project: pathlib.Path) -> Iterator[Source]:
    """Yields a project's own modules, sorted, except those that cannot be decoded."""
    yield from filter(None, map(_read, _python_files(project)))


def lines_of(text: str) -> list[str]:
    """Returns a module's lines with their ends, as `ast` counts them: a form feed ends no line."""
    return list(io.StringIO(text, newline=""))


def _python_files(project: pathlib.Path) -> Iterator[pathlib.Path]:
    if project.is_file():
        yield project
        return
    for path in sorted(project.rglob("*.py")):
        parts = path.relative_to(project).parts
        if not any(part in _SKIPPED or part.startswith(".") for part in parts):
            yield path


def _read(path: pathlib.Path) -> Source | None:
    data = path.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return Source(path, data.decode(encoding), encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):  # encoding declaration wrong or missing
        return None


def _parse(source: Source) -> ast.Module:
    try:
        return ast.parse(source.text, str(source.path))
    except SyntaxError as error:
        raise errors.UserError(
            f"Expected Python. Received: {source.path}:{error.lineno} ({error.msg})."
        ) from error


def _is_call_of(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether a node calls TFX's own component of this name, not that of Google Cloud."""
    if not isinstance(node, ast.Call):
        return False
    callee = ast.unparse(node.func)
    return callee.split(".")[-1] == name and "google_cloud" not in callee


def _trainers(module: ast.Module) -> Iterator[tuple[ast.Assign, ast.Call]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and [*map(type, node.targets)] == [ast.Name]:
            call = _trainer_call(node.value)
            if call is not None:
                yield node, call


def _trainer_call(value: ast.expr) -> ast.Call | None:
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr == "with_id":
        inner = called.value
        is_in_line = inner.end_lineno == value.end_lineno  # otherwise it takes several edits
        return inner if is_in_line and _is_call_of(inner, "Trainer") else None
    return value if _is_call_of(value, "Trainer") else None


def _step(
    source: Source, module: ast.Module, assignment: ast.Assign, call: ast.Call
) -> TrainingStep:
    scope = _scope(module, assignment)
    _check(source.path, scope, call)
    name = ast.unparse(assignment.targets[0])
    return TrainingStep(
        source=source,
        assignment=assignment,
        call=call,
        outermost=next(stmt for stmt in scope.body if _holds(stmt, assignment)),
        listing=_listing(source, scope, name),
        pushers=tuple(node for node in ast.walk(scope) if _is_call_of(node, "Pusher")),
        last_import_line=_last_import_line(module, before=assignment),
    )


def _check(path: pathlib.Path, scope: ast.Module | ast.FunctionDef, call: ast.Call) -> None:
    """Raises UserError for a Trainer with positional arguments, its own executor, or in a loop."""
    given = {keyword.arg for keyword in call.keywords}
    if call.args or "custom_executor_spec" in given:
        what = "custom_executor_spec" if "custom_executor_spec" in given else "one without a name"
        raise errors.UserError(
            "Expected a Trainer with named arguments and TFX's own executor. "
            f"Received: {what} at {path}:{call.lineno}."
        )
    for node in ast.walk(scope):
        if isinstance(node, _LOOPS) and _holds(node, call):
            raise errors.UserError(
                f"Expected one Trainer. Received: one in the loop at {path}:{node.lineno}, which "
                "may make several. Assign it outside the loop."
            )


def _last_import_line(module: ast.Module, *, before: ast.Assign) -> int:
    """Returns the line after which an import can be inserted; 0: before the first line."""
    above = (node for node in module.body if node.lineno < before.lineno)
    imports = [node for node in above if isinstance(node, ast.Import | ast.ImportFrom)]
    if imports:
        return imports[-1].end_lineno
    first = module.body[0]
    if ast.get_docstring(module) is not None:
        return first.end_lineno
    return min(node.lineno for node in [first, *getattr(first, "decorator_list", [])]) - 1


def _holds(node: ast.stmt, wanted: ast.stmt | ast.expr) -> bool:
    return node.lineno <= wanted.lineno and wanted.end_lineno <= node.end_lineno


def _scope(module: ast.Module, assignment: ast.Assign) -> ast.Module | ast.FunctionDef:
    functions = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and _holds(node, assignment)
    ]
    return max(functions, key=lambda node: node.lineno, default=module)


def _listing(source: Source, scope: ast.Module | ast.FunctionDef, name: str) -> ast.Expr | ast.Name:
    parents = {child: node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
    takers = dict(_takers(scope, name, parents))
    if not takers:
        raise errors.UserError(
            f"Expected a pipeline that contains its Trainer. Received: {source.path}, in which no "
            f"list of components takes {name}. Add it first (TFX's templates have it in a comment)."
        )
    likelihoods = {node: _likelihood(holder, scope, parents) for node, holder in takers.items()}
    best = max(likelihoods.values())
    likely = [node for node, likelihood in likelihoods.items() if likelihood == best]
    if len(likely) > 1 or best == 0:
        places = ", ".join(f"{source.path}:{line}" for line in sorted(n.lineno for n in likely))
        raise errors.UserError(
            f"Expected one list of components that takes {name}. Received: {places}, of which none "
            "is surely the pipeline's. Keep only one, and pass it as components=."
        )
    _check_starts_line(source, likely[0])
    return likely[0]


def _takers(
    scope: ast.AST, name: str, parents: dict[ast.AST, ast.AST]
) -> Iterator[tuple[ast.Expr | ast.Name, str | None]]:
    """Yields each place where a name is added to a list, and the holder of the list."""
    for node in ast.walk(scope):
        if isinstance(node, ast.List):
            names = (each for each in node.elts if isinstance(each, ast.Name) and each.id == name)
            item = next(names, None)
            if item is not None:
                yield item, _holder(node, parents)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            appends = isinstance(call.func, ast.Attribute) and call.func.attr == "append"
            if appends and [*map(ast.unparse, call.args)] == [name]:
                yield node, grown_list(call)


def _holder(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    """Returns the holder of a list or a variable; None if it holds no components."""
    parent = parents[node]
    while isinstance(parent, _THROUGH) or _is_through_call(parent):
        parent = parents[parent]
    if isinstance(parent, ast.keyword):
        return _GIVEN if parent.arg == "components" else None
    if _is_call_of(parent, "Pipeline"):
        return _GIVEN
    if isinstance(parent, ast.Return):
        return _RETURNED
    if isinstance(parent, ast.Assign):
        return ast.unparse(parent.targets[0])
    if isinstance(parent, ast.AnnAssign):
        return ast.unparse(parent.target)
    return grown_list(parent)


def _is_through_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in _THROUGH_CALLS


def grown_list(node: ast.AST) -> str | None:
    """Returns the variable whose list a node extends; None if it extends none."""
    if isinstance(node, ast.AugAssign):
        return ast.unparse(node.target)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value) if node.func.attr in _GROWING else None
    return None


def _likelihood(holder: str | None, scope: ast.AST, parents: dict[ast.AST, ast.AST]) -> int:
    """Returns how likely a list holds the pipeline's components; 0 if it may be any other list."""
    if holder is None:
        return 0
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name | ast.Attribute)]
    holders = {(ast.unparse(node), _holder(node, parents)) for node in names}
    reached = {holder}
    while more := {to for name, to in holders if name in reached and to} - reached:
        reached |= more
    if _GIVEN in reached:
        return 3
    grown = {grown_list(node) for node in ast.walk(scope)}
    return 2 if reached & {_RETURNED, *grown} else 1


def _check_starts_line(source: Source, listing: ast.Expr | ast.Name) -> None:
    line = lines_of(source.text)[listing.lineno - 1]
    before = line.encode()[: listing.col_offset]
    if isinstance(listing, ast.stmt) and before.strip():
        raise errors.UserError(
            "Expected the statement that adds the Trainer to the components on its own line. "
            f"Received: {source.path}:{listing.lineno}. Break the line before "
            f"{ast.unparse(listing)}."
        )
