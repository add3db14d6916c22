"""Messages are in plain words: none has a construction that was taken out of all of them."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_names import python_files

# Each with what is said instead.
BANNED = {
    r"\b(go|goes|going|gone|went) on\b": "continues, resumes",
    r"\banew\b": "again, from scratch",
    r"\bas a rule\b": "usually",
    r"\bis meant\b": "is intended",
    r"\b(nobody|whoever)\b": "the thing that acts",
    r"\b(told|said) (to|apart|of)\b": "requested, separated, reported",
    r"^What (?!to do)[a-z]+ ": "a noun",
    r"[.!?] (What|Who) [a-z ]+ (is|are|was|has|will|can) ": "a noun as the subject",
    r"\bis left out\b": "is skipped, is dropped",
    r"\bof its own accord\b": "by itself",
    r"\bone XLA computation\b": "XLA loop",
    r"\bplain fit\b": "Keras fit",
    r"\b(blow-up|blows up)\b": "divergence",
}


def messages() -> Iterator[tuple[str, str]]:
    """Yields where, and the text of, every string of several words that is no docstring."""
    for path in python_files():
        if "benchmarks" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                others |= {id(value) for value in node.values}
                parts = (value.value if isinstance(value, ast.Constant) else "{}"
                         for value in node.values)  # fmt: skip
                yield f"{path.name}:{node.lineno}", "".join(map(str, parts))
            elif id(node) not in others and isinstance(text := getattr(node, "value", 0), str):
                yield f"{path.name}:{node.lineno}", text


@pytest.mark.parametrize("construction", BANNED)
def test_no_message_has_it(construction):
    found = [f"{where}: {text}" for where, text in messages() if re.search(construction, text)]
    assert not found, f"say instead: {BANNED[construction]}"
