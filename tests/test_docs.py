"""README and docs say what is true."""

import pathlib
import re

import pytest
from tfx import types
from tfx.proto import trainer_pb2
from tfx.types import standard_artifacts

from tfx_perf.config import PerfConfig
from tfx_perf.config import gate as gate_settings
from tfx_perf.core import metrics
from tfx_perf.input import candidates

_ROOT = pathlib.Path(__file__).parent.parent
_README = (_ROOT / "README.md").read_text()
_PAGES = sorted(
    page for where in ("*.md", "docs/*.md", "tfx_perf/**/*.md") for page in _ROOT.glob(where)
)


def _code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _README, re.DOTALL)


def test_readme_is_short() -> None:
    assert len(_README.splitlines()) < 120  # noqa: PLR2004


def test_readme_snippet_builds_components() -> None:
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
    exec(_code("python")[0], names)  # noqa: S102
    assert names["gate"].outputs["blessing"].type is standard_artifacts.InfraBlessing
    # A second run starts with what the first has found.
    for reader, key, node in (
        ("tuner", "previous_plans", "plans"),
        ("trainer", "previous_metrics", "metrics"),
        ("gate", "ledger", "ledger"),
    ):
        assert names[reader].inputs[key].producer_component_id == names[node].id
    (sentence,) = re.findall(r"add all\sseven \((.+?)\)", _README)
    assert all(hasattr(names[name], "outputs") for name in re.findall(r"`(\w+)`", sentence))


def test_readme_settings_are_valid(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(_code("yaml")[0])
    assert PerfConfig.from_yaml(path).gate.rules["peak_rss_bytes"].max == 8e9  # noqa: PLR2004


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
    pages = {str(page.relative_to(_ROOT)) for page in _ROOT.glob("docs/*.md")}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", _README))


def test_metrics_page_lists_the_catalogue() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \| ([\w ]+) \| (.+) \|$",
        (_ROOT / "docs" / "metrics.md").read_text(),
        re.MULTILINE,
    )
    assert rows == [
        (item.key, item.unit, item.direction.value, item.description)
        for item in metrics.CATALOGUE.values()
    ]


def test_pages_have_a_row_for_each_candidate_and_default_rule() -> None:
    names = {*candidates.CANDIDATES} - {"default"}
    names |= {f"+{candidates.Autotune.kind}", candidates.Service.name}
    for page, keys in (("input", names), ("gate", gate_settings.DEFAULT_RULES)):
        text = (_ROOT / "docs" / f"{page}.md").read_text()
        rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
        assert set(keys) <= named, f"docs/{page}.md has no row for {set(keys) - named}"
