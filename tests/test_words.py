"""Messages, comments and docstrings are in plain words: none has a banned construction."""

import ast
import functools
import io
import re
import tokenize

import pytest

from tests.test_names import python_files, strings

# Each with what is said instead.
_EVERYWHERE = {
    r"\b(go|goes|going|gone|went) on\b": "continues, resumes",
    r"\banew\b": "again, from scratch",
    r"\bas a rule\b": "usually",
    r"\b(nobody|whoever)\b": "the thing that acts",
}
BANNED = {
    **_EVERYWHERE,
    r"\bis meant\b": "is intended",
    r"\b(told|said) (to|apart|of)\b": "requested, separated, reported",
    r"^What (?!to do)[a-z]+ ": "a noun",
    r"[.!?] (What|Who) [a-z ]+ (is|are|was|has|will|can) ": "a noun as the subject",
    r"\bis left out\b": "is skipped, is dropped",
    r"\bof its own accord\b": "by itself",
    r"\bone XLA computation\b": "XLA loop",
    r"\bplain fit\b": "Keras fit",
    r"\b(blow-up|blows up)\b": "divergence",
}
# Comments and docstrings have room for a sentence, so fewer are banned there.
BANNED_IN_PROSE = {**_EVERYWHERE, r"^Of [A-Za-z]": "a sentence with a subject"}


@functools.cache
def messages() -> list[tuple[str, str]]:
    """Returns where, and the text of, every string that stands in an expression."""
    found = []
    for path in python_files():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        statements = [node.value for node in nodes if isinstance(node, ast.Expr)]
        docs = {node.value for node in statements if isinstance(node, ast.Constant)}
        if "benchmarks" not in path.parts:
            found += [(path.name, text) for text in strings(path) if text not in docs]
    return found


@pytest.mark.parametrize("construction", BANNED)
def test_no_message_has_it(construction):
    found = [f"{where}: {text}" for where, text in messages() if re.search(construction, text)]
    assert not found, f"say instead: {BANNED[construction]}"


@functools.cache
def prose() -> list[tuple[str, str]]:
    """Returns where, and the text of, every comment and docstring."""
    texts = []
    for path in python_files():
        source = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = [each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT]
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, owners)]
        texts += [(path.name, text) for text in (*comments, *map(ast.get_docstring, nodes)) if text]
    return texts


@pytest.mark.parametrize("construction", BANNED_IN_PROSE)
def test_no_comment_and_no_docstring_has_it(construction):
    found = [f"{where}: {text}" for where, text in prose() if re.search(construction, text)]
    assert not found, f"say instead: {BANNED_IN_PROSE[construction]}"


@functools.cache
def local_names() -> set[tuple[str, str]]:
    """Returns the names in functions, and where they are."""
    return {
        (node.id if isinstance(node, ast.Name) else node.arg, f"{path.name}:{node.lineno}")
        for path in python_files()
        if "benchmarks" not in path.parts
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.Lambda)
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.arg)
    }


@pytest.mark.parametrize("name", ["found", "kept", "own", "said"])
def test_no_local_name_says_only_that_it_holds_something(name):
    places = [place for each, place in local_names() if each == name]
    assert not places, "name it by what it holds"
