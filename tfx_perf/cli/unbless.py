"""`tfx-perf unbless`: takes a run out of the baseline."""

from typing import Any

import click

from tfx_perf.cli import bless


@click.command("unbless")
@click.argument("run")
@bless.options
def command(*, run: str, **options: Any) -> None:
    """Makes RUN no longer count as baseline.

    RUN is the id of a run in the ledger, or the beginning of one. Who, when and why are
    recorded. A model that was pushed stays where it is.
    """
    bless.record("unbless", run, **options)
