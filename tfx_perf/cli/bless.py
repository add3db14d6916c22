"""`tfx-perf bless`: counts a run as baseline though the gate refused it."""

from typing import Any

import click

from tfx_perf.cli import acts


@click.command("bless")
@click.argument("run")
@acts.options
def command(*, run: str, **options: Any) -> None:
    """Makes RUN count as baseline from now on.

    RUN is a run's id in ML Metadata, or the beginning of one; or the path of the
    evaluation.json that PerfEvaluator wrote about it. Who, when and why are recorded.
    The model is not pushed by this.
    """
    acts.record("bless", run, **options)
