"""`python -m benchmarks.gate simulated` and `... real`: see `--help`."""

import json
import pathlib
import subprocess
import tempfile

import click
import numpy as np

from benchmarks import machine
from benchmarks.gate import histories, judging, many_runs, months, real, results, short_runs
from tfx_perf.config.gate import GateSettings

_ROOT = pathlib.Path(__file__).parents[2]
_PATH = click.Path(path_type=pathlib.Path)
_JSON = click.option(
    "--json", "json_path", type=_PATH, default=_ROOT / "docs" / "gate_benchmark.json",
    help="Where to write the figures; those of the other command there stay.",
)  # fmt: skip
_RIVALS_JOB = pathlib.Path(__file__).with_name("rivals_job.py")
_RIVALS_RUNS = 8
_RIVALS = ("asv", "apache-otava", "scipy")


@click.group()
def main() -> None:
    """Measures how often the gate is wrong."""


@main.command("simulated")
@click.option("--same", type=click.IntRange(min=1), default=1500, show_default=True,
              help="Histories in a cell where nothing changed.")  # fmt: skip
@click.option("--changed", type=click.IntRange(min=1), default=500, show_default=True,
              help="Histories in a cell with a planted change.")  # fmt: skip
@click.option("--rival-python", type=_PATH, help="Interpreter with asv and apache-otava.")
@click.option("--rival-histories", type=click.IntRange(min=1), default=120, show_default=True)
@_JSON
def simulated(
    *,
    same: int,
    changed: int,
    rival_python: pathlib.Path | None,
    rival_histories: int,
    json_path: pathlib.Path,
) -> None:
    """Judges simulated histories, by the gate and by other tools."""
    found = []
    for seed, cell in enumerate(histories.cells()):
        count = changed if cell.effect else same
        drawn = histories.simulate(cell, count=count, seed=seed)
        shares = {}
        if rival_python and cell.runs == _RIVALS_RUNS:
            shares = _rivals(rival_python, drawn.steps[:rival_histories])
        judged = judging.judge(drawn)
        found.append(results.CellResult(cell=cell, count=count, rivals=shares, **judged))
        click.echo(
            f"sd {cell.run_sd:.1%} rho {cell.autocorrelation:g} runs {cell.runs} "
            f"effect {cell.effect:.0%}: refused {judged['refused']:.1%}"
        )
    versions = _versions(rival_python) if rival_python else {}
    _write(json_path, cells=tuple(found), versions=versions)
    click.echo("\n" + results.table(found) + "\n" + "\n".join(results.verdicts(found)))


@main.command("months")
@click.option("--count", type=click.IntRange(min=1), default=20, show_default=True,
              help="Histories of each world.")  # fmt: skip
@_JSON
def simulated_months(*, count: int, json_path: pathlib.Path) -> None:
    """Judges simulated months of pipelines, of which the truth is known."""
    scores = {}
    for seed, (name, world) in enumerate(months.WORLDS.items()):
        for where, in_turns in (("script", False), ("pipeline", True)):
            found = months.score(world, count=count, seed=seed, in_turns=in_turns)
            scores[f"{name}, {where}"] = found
            click.echo(f"{name}, {where}: {found.describe()}")
    _write(json_path, months=scores)


@main.command("short-runs")
@click.option("--count", type=click.IntRange(min=1), default=200, show_default=True,
              help="Histories of each kind.")  # fmt: skip
@_JSON
def short(*, count: int, json_path: pathlib.Path) -> None:
    """Judges simulated trainings of 100 to 10,000 quick steps, on a quiet and a busy machine."""
    found = []
    for each in short_runs.judge(count=count):
        found.append(each)
        click.echo(each.describe())
    _write(json_path, short_runs=tuple(found))


@main.command("many-runs")
@click.option("--count", type=click.IntRange(min=1000), default=10_000, show_default=True)
@_JSON
def many(*, count: int, json_path: pathlib.Path) -> None:
    """Judges thousands of runs of three pipelines that share a ledger, and times each."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = np.fromiter(many_runs.judge(pathlib.Path(folder), count=count), float)
    medians = np.median(seconds[: count // 1000 * 1000].reshape(-1, 1000), axis=1).tolist()
    for number, median in enumerate(medians, start=1):
        click.echo(f"runs up to {1000 * number:,}: {1000 * median:.0f} ms each")
    _write(json_path, judging_seconds=tuple(medians))


@main.command("real")
@click.option("--rounds", type=click.IntRange(min=4), default=12, show_default=True,
              help="Trainings of each kind, in turns.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=60), default=400, show_default=True)
@click.option("--data", type=_PATH, default=_ROOT / ".benchmark-data" / "gate-runs",
              help="Folder for the runs; those that are there are not made again.")  # fmt: skip
@_JSON
def trained(*, rounds: int, steps: int, data: pathlib.Path, json_path: pathlib.Path) -> None:
    """Judges real trainings, some with planted faults, by the default rules."""
    runs = real.train(data, rounds=rounds, steps=steps, say=click.echo)
    judged = real.judge(runs, GateSettings())
    note = f"{rounds} trainings of each kind, {steps} steps each; {machine.describe()}"
    _write(json_path, real=judged, real_note=note, real_noise=real.noise(runs))
    click.echo(json.dumps({"noise": real.noise(runs), **judged}, indent=2))


@main.command("turns")
@click.option("--rounds", type=click.IntRange(min=1), default=20, show_default=True,
              help="Trainings of each case.")  # fmt: skip
@click.option("--data", type=_PATH, default=_ROOT / ".benchmark-data", help="Folder for data sets.")
@_JSON
def measured_again(*, rounds: int, data: pathlib.Path, json_path: pathlib.Path) -> None:
    """Measures refused trainings again in turns: with slower code, and on a slower machine."""
    from benchmarks.gate import turns  # imports TFX

    found = {}
    for case in turns.CASES:
        found[case] = turns.judge(case, rounds=rounds, data_folder=data)
        click.echo(f"{case}: {found[case].model_dump_json()}")
    _write(json_path, turns=found)


def _write(path: pathlib.Path, **fields: object) -> None:
    known = results.GateBenchmark.read(path) if path.exists() else results.GateBenchmark()
    known.model_copy(update=fields).write(path)


def _rivals(python: pathlib.Path, steps: np.ndarray) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "histories.npz")
        np.savez(path, steps=steps.astype(np.float32))
        return json.loads(_output(python, str(_RIVALS_JOB), str(path)))


def _versions(python: pathlib.Path) -> dict[str, str]:
    code = f"import importlib.metadata as m; print(*map(m.version, {_RIVALS}))"
    return dict(zip(_RIVALS, _output(python, "-c", code).split(), strict=True))


def _output(*command: object) -> str:
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
