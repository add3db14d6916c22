"""`tfx-perf calibrate`: how often the gate is wrong on a history."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich import markup

from tfx_perf.cli import terminal
from tfx_perf.config import PerfConfig
from tfx_perf.core import formatting

if TYPE_CHECKING:
    from tfx_perf.gate.calibration import Calibration

_FEWEST_REPLAYED = 9  # of ten runs: the first has none before it


@click.command("calibrate")
@click.argument("source")
@click.option("--pipeline", metavar="NAME", help="Only this pipeline's runs.")
@click.option("--refused", is_flag=True, help="Also replay the runs that were refused.")
@click.option(
    "--config", "settings_path", metavar="YAML",
    help="Settings with the gate's rules; by default, the default rules.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON, not a table.")
def command(
    *, source: str, pipeline: str | None, refused: bool, settings_path: str | None, as_json: bool
) -> None:
    """Replays the runs in SOURCE and shows how often the gate would have been wrong.

    SOURCE is ML Metadata or a ledger, as for `tfx-perf history`. The runs are taken to be
    equally good: every refusal counts as a false alarm. For each metric it also shows what
    runs vary by, and the smallest change that is found in four of five runs.
    """
    # Imported here: SciPy and ML Metadata take longer than the rest of the command line.
    from tfx_perf.gate import calibration, history

    settings = PerfConfig.from_yaml(settings_path) if settings_path else PerfConfig()
    judged = history.judged_runs(source, pipeline=pipeline)
    runs = [run for run, is_blessed in judged if refused or is_blessed]
    acts = history.people_decided(source, pipeline=pipeline).acts
    replayed = calibration.replay(runs, settings.gate, acts=acts)
    if as_json:
        document = replayed.model_dump(mode="json")
        terminal.show_json({**document, "false_alarm_rate": replayed.false_alarm_rate})
        return
    click.echo("\n".join(_findings(replayed, run_count=len(runs), settings_path=settings_path)))
    if left_out := len(judged) - len(runs):
        click.echo(
            f"{formatting.counted(left_out, 'refused run')} left out; --refused replays "
            f"{'it' if left_out == 1 else 'them'}, too"
        )
    if not replayed.metrics:
        return
    rows = terminal.figures_table(
        "", "metric", "beyond\nlimit", "com-\npared", "regres-\nsions", "incon-\nclusive",
        "noise", "smallest\ndetectable\nchange",
    )  # fmt: skip
    for item in replayed.metrics:
        rows.add_row(
            markup.escape(item.metric), str(item.beyond_limit), str(item.compared),
            str(item.regressions), str(item.inconclusive), _percent(item.noise),
            _percent(item.detectable),
        )  # fmt: skip
    terminal.show(rows)


def _findings(replay: "Calibration", *, run_count: int, settings_path: str | None) -> Iterator[str]:
    """Yields lines on what was replayed, by which rules, and what was refused."""
    replayed = formatting.counted(replay.replayed, "run")
    of_them = f"{replayed} replayed, each against the runs before it: {replay.refused} refused"
    if not replay.replayed:
        yield "No run has a comparable run before it, so there is nothing to replay."
    elif replay.replayed < _FEWEST_REPLAYED:
        few = "At least ten runs are needed to estimate how often the gate is wrong"
        yield f"{of_them}. {few}"
    else:
        yield f"{of_them} ({replay.false_alarm_rate:.1%})"
    if settings_path is None:
        yield "By the default rules; --config YAML replays by those of a pipeline or a script"
    else:
        yield f"By the rules of {settings_path}"
    if replay.beyond_limit:
        of_all = formatting.counted(run_count, "run")
        yield f"{replay.beyond_limit} of {of_all} refused by an absolute limit"


def _percent(share: float | None) -> str:
    return formatting.MISSING if share is None else f"{share:.1%}"
