"""Command-line options that several benchmarks share."""

import pathlib

import click

PATH = click.Path(path_type=pathlib.Path)
DATA = click.option(
    "--data",
    type=PATH,
    default=pathlib.Path(__file__).parents[1] / ".benchmark-data",
    help="Folder for data sets.",
)
JSON = click.option(
    "--json", "json_path", type=PATH, show_default="in --data", help="Where to write the figures."
)
ADD = click.option("--add", is_flag=True, help="Keep the other cells that are in the JSON file.")
