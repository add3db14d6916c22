"""`tfx-perf template`: copies a project to start from."""

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

    if as_json:
        terminal.show_json(copying.TEMPLATES)
        return
    rows = table.Table(box=box.SIMPLE_HEAD)
    rows.add_column("template", no_wrap=True)
    rows.add_column("what it is")
    for name, summary in copying.TEMPLATES.items():
        rows.add_row(name, summary)
    terminal.show(rows)


@command.command("copy")
@click.option("--model", required=True, metavar="NAME", help="A template, see `template list`.")
@click.option("--pipeline-name", "--pipeline_name", required=True, metavar="NAME")
@click.option("--destination-path", "--destination_path", required=True, metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="The written files as JSON.")
def copy(*, model: str, pipeline_name: str, destination_path: str, as_json: bool) -> None:
    """Copies a template into a new folder."""
    from tfx_perf.templates import copying

    files = copying.copy_project(
        model, pipeline_name=pipeline_name, destination=pathlib.Path(destination_path)
    )
    if as_json:
        terminal.show_json({"files": [str(path) for path in files]})
        return
    for path in files:
        click.echo(f"Written: {path}", err=True)
