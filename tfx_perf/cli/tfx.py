"""`tfx-perf tfx`: TFX's command line, repaired."""

import click

from tfx_perf.cli import terminal


@click.command(
    "tfx", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--install", is_flag=True, help="Make `tfx` itself do what this does.")
@click.option("--restore", is_flag=True, help="Make `tfx` TFX's own again.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(*, install: bool, restore: bool, arguments: tuple[str, ...]) -> None:
    """Runs TFX's command line with what is broken in it repaired.

    Takes what `tfx` takes, e.g. `tfx-perf tfx pipeline create --engine airflow ...`.
    """
    from tfx_perf.cli.repairs import entry, script

    if install or restore:
        if arguments or (install and restore):
            raise click.UsageError("--install and --restore stand alone.")
        written = script.install() if install else script.restore()
        terminal.show(f"{written}: {'repaired' if install else 'TFX own'}")
        return
    entry.main(list(arguments))
