"""The page "I was refused", which a refused run has beside its report."""

import pathlib
import re

import jinja2
import markdown

FILE_NAME = "refused.html"

_PAGE = pathlib.Path(__file__).with_name("refused.md")
_TEMPLATE_FOLDER = _PAGE.parent
# Other pages of the docs are not where this one is read; the name says which one it is, and whose.
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(docs/[^)#]+)[^)]*\)")


def render() -> str:
    """Returns the page as HTML that needs no other file."""
    text = _LINK.sub(r"\1: \2 in tfx-perf's repository", _PAGE.read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATE_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("guide.html.j2").render(
        body=markdown.markdown(text, extensions=["tables", "fenced_code"])
    )
