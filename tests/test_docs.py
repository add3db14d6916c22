"""README and docs say what is true."""

import pathlib
import re

import pytest
from tfx import types
from tfx.proto import trainer_pb2
from tfx.types import standard_artifacts

from docs import generate
from tfx_perf.config import PerfConfig
from tfx_perf.config import gate as gate_settings
from tfx_perf.input import candidates

_ROOT = pathlib.Path(__file__).parent.parent
_README = (_ROOT / "README.md").read_text()
_PAGES = sorted(
    page for where in ("*.md", "docs/*.md", "tfx_perf/**/*.md") for page in _ROOT.glob(where)
)


def _code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _README, re.DOTALL)


def test_readme_is_short() -> None:
    assert len(_README.splitlines()) <= 100  # noqa: PLR2004
    assert len(re.findall(r"(?<!!)\[[^\]]+\]\([^)]+\)", _README)) <= 8  # noqa: PLR2004


def test_the_snippet_builds_components() -> None:
    class _Transform:
        outputs = {
            "transformed_examples": types.Channel(type=standard_artifacts.Examples),
            "transform_graph": types.Channel(type=standard_artifacts.TransformGraph),
        }

    names = {
        "transform": _Transform,
        "run_fn": "models.model.run_fn",
        "train_args": trainer_pb2.TrainArgs(num_steps=10),
        "eval_args": trainer_pb2.EvalArgs(num_steps=10),
    }
    page = (_ROOT / "docs" / "training.md").read_text()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)  # noqa: S102
    assert names["gate"].outputs["blessing"].type is standard_artifacts.InfraBlessing
    # A second run starts with what the first has found.
    for reader, key, node in (
        ("tuner", "previous_plans", "plans"),
        ("trainer", "previous_metrics", "metrics"),
        ("gate", "ledger", "ledger"),
    ):
        assert names[reader].inputs[key].producer_component_id == names[node].id
    (sentence,) = re.findall(r"Add all seven \((.+?)\)", page)
    assert all(hasattr(names[name], "outputs") for name in re.findall(r"`(\w+)`", sentence))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\((?!https:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for target, anchor in re.findall(r"\]\((?!https:)([^)#]*)#([^)]+)\)", page.read_text()):
        headings = _headings(page.parent / target if target else page)
        assert anchor in headings, f"{page.name} links to {target}#{anchor}"


def _headings(page: pathlib.Path) -> set[str]:
    """Returns the anchors of a page, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_reached_from_readme() -> None:
    reached, found = set(), {_ROOT / "README.md"}
    while new := found - reached:
        reached |= new
        for page in new:
            links = re.findall(r"\]\((?!https:)([^)#]+\.md)", page.read_text())
            found |= {(page.parent / link).resolve() for link in links}
    assert set(_ROOT.glob("docs/*.md")) <= reached


@pytest.mark.parametrize("name", generate.TABLES)
def test_tables_are_those_of_the_code(name: str) -> None:
    """Else run `make docs`."""
    page = _ROOT / "docs" / name
    assert page.read_text(encoding="utf-8") == generate.page(name)


def test_every_field_of_the_settings_is_described() -> None:
    for setting, _, text in generate.settings(PerfConfig):
        assert text, setting


def test_pages_have_a_row_for_each_candidate_and_default_rule() -> None:
    names = {*candidates.CANDIDATES} - {"default"}
    names |= {f"+{candidates.Autotune.kind}", candidates.Service.name}
    for page, keys in (("input", names), ("gate", gate_settings.DEFAULT_RULES)):
        text = (_ROOT / "docs" / f"{page}.md").read_text()
        rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
        assert set(keys) <= named, f"docs/{page}.md has no row for {set(keys) - named}"


def test_settings_that_are_deep_inside_are_found() -> None:
    told = {setting: default for setting, default, _ in generate.settings(PerfConfig)}
    assert told["training.steps_per_execution"] == "`[10, 50]`"
    assert told["distribution.job.worker_count"] == "required"
    assert told["gate.rules.METRIC.tolerance"] == "`null`"
    assert told["gate.policy.incomparable"] == "`if quality holds`"
