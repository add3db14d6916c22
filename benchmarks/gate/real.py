"""Real trainings, judged by the gate: with nothing changed, and with planted faults."""

import collections
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfx_perf import isolate
from tfx_perf.config.gate import GateSettings
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

SAME = "nothing changed"
_MIB = 2**20
KINDS: Mapping[str, Mapping[str, Any]] = {
    SAME: {"slowdown": 0.0, "held_bytes": 0},
    "step +3%": {"slowdown": 0.03, "held_bytes": 0},
    "step +5%": {"slowdown": 0.05, "held_bytes": 0},
    "step +10%": {"slowdown": 0.10, "held_bytes": 0},
    "memory +100 MiB": {"slowdown": 0.0, "held_bytes": 100 * _MIB},
}
_TIMEOUT_SECONDS = 300
_FEWEST_BASELINE_RUNS = 3


def train(
    folder: pathlib.Path, *, rounds: int, steps: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Trains every kind in turns, so that a slow hour of the machine affects all of them.

    Args:
        folder: every run is kept there, so that the next call continues after the last one.
        rounds: trainings of each kind.
        steps: of a training.
        say: receives a line about every training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs = collections.defaultdict(list)
    for number in range(rounds):
        for index, (kind, fault) in enumerate(KINDS.items()):
            path = folder / f"{number:02d}-{index}.json"
            if not path.exists():
                found = isolate.run(
                    "benchmarks.gate.train_job:run",
                    {"name": path.stem, "steps": steps, **fault},
                    timeout_seconds=_TIMEOUT_SECONDS,
                    log_path=path.with_suffix(".log"),
                )
                path.write_text(json.dumps(found))
            runs[kind].append(Run.model_validate_json(path.read_text()))
            say(f"{path.stem} {kind}: {runs[kind][-1].figures['step_time_seconds'] * 1e3:.3f} ms")
    return dict(runs)


def judge(runs: Mapping[str, Sequence[Run]], settings: GateSettings) -> dict[str, dict[str, int]]:
    """Returns for each kind how many runs were judged and refused, and by which metrics.

    Each run is compared with the unchanged runs of the rounds before it, which all count as
    blessed, so that one wrong refusal does not affect later runs.

    Args:
        runs: by kind, in the order of the rounds.
        settings: the gate's.
    """
    counts: dict[str, dict[str, int]] = {}
    for kind, own in runs.items():
        counter = collections.Counter({"runs": 0, "refused": 0})
        for number in range(_FEWEST_BASELINE_RUNS, len(own)):
            ledger = Ledger(entries=tuple(runs[SAME][:number]))
            decision = evaluate(own[number], ledger=ledger, settings=settings)
            counter["runs"] += 1
            counter["refused"] += not decision.blessed
            refusing = [outcome for outcome in decision.outcomes if outcome.refuses]
            # Once for each run: a change and the drift since the best level may both refuse.
            counter.update({f"{each.metric}: {each.verdict.value}" for each in refusing})
        counts[kind] = dict(counter)
    return counts


def noise(runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Returns each figure's relative standard deviation between unchanged runs."""
    found = {}
    for key in runs[SAME][0].figures:
        figures = [run.figures[key] for run in runs[SAME] if key in run.figures]
        if len(figures) == len(runs[SAME]) and np.mean(figures):
            found[key] = float(np.std(figures, ddof=1) / abs(np.mean(figures)))
    return found
