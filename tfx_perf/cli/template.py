"""`tfx-perf template`: copies a project to start from."""

import dataclasses
import pathlib

import click
from rich import box, table

from tfx_perf.cli import options, terminal


@click.group("template", cls=options.Group)
def command() -> None:
    """Lists and copies project templates; both commands take --json."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="JSON, not a table.")
def list_templates(*, as_json: bool) -> None:
    """Lists the templates."""
    from tfx_perf.templates import copying

    summaries = {template.name: template.summary for template in copying.TEMPLATES.values()}
    if as_json:
        terminal.show_json(summaries)
        return
    rows = table.Table(box=box.SIMPLE_HEAD)
    rows.add_column("template", no_wrap=True)
    rows.add_column("what it is")
    for name, summary in summaries.items():
        rows.add_row(name, summary)
    terminal.show(rows)


@command.command("copy")
@click.option("--model", required=True, metavar="NAME", help="A template, see `template list`.")
@click.option("--pipeline-name", "--pipeline_name", required=True, metavar="NAME")
@click.option("--destination-path", "--destination_path", required=True, metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")
def copy(*, model: str, pipeline_name: str, destination_path: str, as_json: bool) -> None:
    """Copies a template into a new folder, or `perf-addon` into an existing project."""
    copied = copy_template(
        model, pipeline_name=pipeline_name, destination=pathlib.Path(destination_path)
    )
    if as_json:
        files = [str(path) for path in copied.files]
        terminal.show_json({"files": files, "patch": copied.patch, "notes": copied.notes})
    else:
        show(copied)


@dataclasses.dataclass(frozen=True)
class Copied:
    """The files that were written, notes, and a unified diff of a file to change, if any."""

    files: list[pathlib.Path]
    patch: str = ""
    notes: tuple[str, ...] = ()


def copy_template(name: str, *, pipeline_name: str, destination: pathlib.Path) -> Copied:
    """Copies a template to a free folder, or `perf-addon` to a project, which keeps its name."""
    from tfx_perf.templates import addon, copying

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


def show(copied: Copied) -> None:
    """Writes what was copied; the patch alone goes to standard output."""
    for path in copied.files:
        terminal.show_progress(f"Written: {path}")
    if copied.patch:
        terminal.show_progress("Apply this with `git apply` or `patch -p1` in the project:")
        click.echo(copied.patch, nl=False)
    for note in copied.notes:
        terminal.show_progress(f"Note: {note}")
