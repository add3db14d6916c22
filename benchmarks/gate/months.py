"""Scores the gate on simulated months of pipelines that share a ledger; the truth is known."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import records, statistics
from tfx_perf.gate.decision import AbRerun
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import decide, evaluate

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
_DAYS, _CHANGE_DAY, _CREEPING_DAYS = 90, 60, 200
_FOUND_WITHIN = 3
_METRICS = ("accuracy", "auc", "precision", "recall")


@dataclasses.dataclass(frozen=True)
class World:
    """The true behavior of a pipeline.

    Attributes:
        noise: relative standard deviation of a run's step time.
        correlation: between the noise of one run and that of the next.
        data_noise: relative standard deviation of the evaluation's metrics, due to new data.
        has_baseline: whether Evaluator also evaluates a baseline model on the same data.
        growth: relative growth of the model per day.
        follows: exponent of the size, for time and memory; None: drawn from 0 to 1.
        slowdown: factor of the step time from day 60 on.
        drift: relative increase of the step time per day.
        decay: relative decrease of the evaluation's metrics per day.
        faster: factor of the step time from day 30 on.
        moves: whether another machine trains from day 60 on, whose first run a person blesses.
        reruns: number of further runs that take a training from the cache.
        jumps: whether clocks jump back by up to two days.
        pipelines: how many share the ledger and use the same run names.
        machine: how many times as long a step takes on the machine of a day, given its number.
    """

    noise: float = 0.02
    correlation: float = 0.0
    data_noise: float = 0.003
    has_baseline: bool = False
    growth: float = 0.0
    follows: float | None = 0.0
    slowdown: float = 1.0
    drift: float = 0.0
    decay: float = 0.0
    faster: float = 1.0
    moves: bool = False
    reruns: int = 0
    jumps: bool = False
    pipelines: int = 1
    machine: Callable[[int, np.random.Generator], float] = lambda day, random: 1.0


def _rare_tail(day: int, random: np.random.Generator) -> float:
    return 1 + (random.exponential(0.1) if random.uniform() < 0.1 else 0.0)


def _neighbor(day: int, random: np.random.Generator) -> float:
    return 1.5 if random.uniform() < 0.1 else 1.0


def _two_machines(day: int, random: np.random.Generator) -> float:
    return 1.15 if random.uniform() < 0.5 else 1.0


def _workdays(day: int, random: np.random.Generator) -> float:
    return 1.08 if day % 7 < 5 else 1.0


def _month(day: int, random: np.random.Generator) -> float:
    return 1 + 0.05 * float(np.sin(2 * np.pi * day / 30))


def _slower_for_good(day: int, random: np.random.Generator) -> float:
    return 1.12 if day >= _CHANGE_DAY else 1.0


WORLDS: Mapping[str, World] = {
    "nothing changes": World(),
    "nothing changes, quiet machine": World(noise=0.003),
    "nothing changes, noise 5%": World(noise=0.05),
    "autocorrelation 0.5": World(correlation=0.5),
    "other evaluation data every day, 3%": World(data_noise=0.03),
    "the same, Evaluator has a baseline model": World(data_noise=0.03, has_baseline=True),
    "trainings taken from cache": World(reruns=2),
    "clocks jump": World(jumps=True),
    "three pipelines, one ledger": World(pipelines=3),
    "model grows by 1% a day": World(noise=0.01, growth=0.01, follows=None),
    "four times as fast from day 30 on": World(faster=0.25),
    "another machine from day 60 on": World(moves=True),
    "10% slower from day 60 on": World(noise=0.01, slowdown=1.1),
    "10% slower, model grows by 1% a day": World(
        noise=0.01, growth=0.01, follows=None, slowdown=1.1
    ),
    "10% slower, trainings taken from cache": World(noise=0.01, reruns=2, slowdown=1.1),
    "0.3% slower every day": World(noise=0.01, drift=0.003),
    "0.1% slower every day": World(noise=0.01, drift=0.001),
    "0.1% slower every day, quiet machine": World(noise=0.003, drift=0.001),
    "metrics 0.1% worse every day": World(noise=0.01, decay=0.001),
    "5% slower from day 60 on": World(noise=0.01, slowdown=1.05),
    "5% slower from day 60 on, noise 2%": World(slowdown=1.05),
    "10% of runs have a long tail": World(noise=0.01, machine=_rare_tail),
    "a neighbor slows 10% of runs 1.5 times": World(noise=0.01, machine=_neighbor),
    "two machines under one name, 15% apart": World(noise=0.01, machine=_two_machines),
    "8% slower on workdays": World(noise=0.01, machine=_workdays),
    "5% slower and faster in the course of a month": World(noise=0.01, machine=_month),
    "machine 12% slower from day 60 on": World(noise=0.01, machine=_slower_for_good),
}
# Standard deviation of a step time over another's, measured in turns; the interval is twice that.
_TURNS_NOISE = 0.005


class Score(records.Record):
    """The gate's verdicts in a world.

    Attributes:
        histories: number of simulated histories.
        healthy_runs: runs that were no worse than those before.
        refused: share of them that were refused.
        unchecked: runs, healthy or not, blessed without a comparison despite earlier runs.
        found: share of slowdowns refused within 3 days, or drifts at any time; otherwise None.
        late_refused: share of slow runs that were refused, over all days; otherwise None.
        found_at: of drifts, by how much a run was worse when one was first refused, in the median.
        measured: share of runs that were measured again in turns; 0 without.
    """

    histories: int
    healthy_runs: int
    refused: float
    unchecked: int
    found: float | None
    late_refused: float | None = None
    found_at: float | None = None
    measured: float = 0.0

    def describe(self) -> str:
        """Returns the score in one line."""
        words = []
        if self.healthy_runs:
            words.append(f"{self.refused:.1%} of {self.healthy_runs} healthy runs refused")
        if self.found is not None:
            words.append(f"found in {self.found:.0%} of {self.histories} histories")
        if self.found_at is not None:
            words.append(f"at +{self.found_at:.1%}")
        if self.late_refused is not None:
            words.append(f"{self.late_refused:.0%} of slow runs refused")
        if self.measured:
            words.append(f"{self.measured:.0%} of runs measured in turns")
        return f"{', '.join(words)}; {self.unchecked} runs blessed unchecked"


def score(world: World, *, count: int, seed: int, in_turns: bool = False) -> Score:
    """Simulates a world `count` times.

    Args:
        world: the true behavior.
        count: histories.
        seed: of the noise.
        in_turns: whether a run is measured again beside blessed ones, as in a pipeline.
    """
    healthy = refused = unchecked = found = runs = slow = slow_refused = measured = 0
    settings, creeps, found_at = GateSettings(), world.drift or world.decay, []
    for number in range(count):
        ledger, late_refusals = Ledger(), 0
        make = runs_of(world, np.random.default_rng([seed, number]))
        for day in range(_CREEPING_DAYS if creeps else _DAYS):
            is_worse = day >= _CHANGE_DAY and world.slowdown > 1.0
            for run in make(day):
                given = {"ledger": ledger, "settings": settings}
                runs += 1
                if in_turns:
                    measure = _turns(world, day, np.random.default_rng([seed, number, day]))
                    decision = decide(run, **given, measure=measure)
                    measured += decision.ab_rerun is not None
                else:
                    decision = evaluate(run, **given)
                is_first = not ledger.without(run).of_node(run)
                changes = [item for item in decision.outcomes if item.kind == "change"]
                if decision.blessed and not is_first:
                    unchecked += not any(item.checked for item in changes)
                if decision.blessed:
                    ledger = ledger.append(run, keep=settings.ledger_size)
                elif world.moves and day == _CHANGE_DAY:
                    ledger = ledger.merge(Ledger(entries=(run,), acts=(_blessing(run),)))
                if is_worse:
                    slow += 1
                    slow_refused += not decision.blessed
                    late_refusals += day < _CHANGE_DAY + _FOUND_WITHIN and not decision.blessed
                elif not creeps:
                    healthy += 1
                    refused += not decision.blessed
            if creeps and not decision.blessed:
                late_refusals += 1
                found_at.append((1 + creeps) ** day - 1)
                break
        found += late_refusals > 0
    has_fault = world.slowdown > 1.0 or creeps
    return Score(
        histories=count,
        healthy_runs=healthy,
        refused=refused / healthy if healthy else 0.0,
        unchecked=unchecked,
        found=found / count if has_fault else None,
        late_refused=slow_refused / slow if slow else None,
        found_at=float(np.median(found_at)) if found_at else None,
        measured=measured / runs,
    )


def _turns(
    world: World, day: int, random: np.random.Generator
) -> Callable[[Sequence[Run]], AbRerun]:
    """Returns a measurement of the day's code beside that of the last of some runs."""

    def measure(blessed: Sequence[Run]) -> AbRerun:
        if not blessed:
            return AbRerun(reason="there is no such run")
        other = int(blessed[-1].run_id.removeprefix("scheduled__").partition(".")[0])
        ratio = _code(world, day) / _code(world, other) * (1 + _TURNS_NOISE * random.normal())
        low, high = ratio * (1 - 2 * _TURNS_NOISE), ratio * (1 + 2 * _TURNS_NOISE)
        return AbRerun(
            against=blessed[-1].run_id, ratio=statistics.Interval(value=ratio, low=low, high=high)
        )

    return measure


def _code(world: World, day: int) -> float:
    """Returns how many times as long a step takes because of the code of a day."""
    slowdown = world.slowdown if day >= _CHANGE_DAY else 1.0
    faster = world.faster if day >= _DAYS // 3 else 1.0
    return (1 + world.growth) ** (day * (world.follows or 0.0)) * (
        (1 + world.drift) ** day * slowdown * faster
    )


def _blessing(run: Run) -> Override:
    return Override(
        kind="bless", run_id=run.run_id, who="who moved it", time=run.time, reason="meant"
    )


def runs_of(world: World, random: np.random.Generator) -> Callable[[int], list[Run]]:
    """Returns a function that draws the runs of a day, given its number."""
    follows = random.uniform() if world.follows is None else world.follows
    levels = random.normal(size=world.pipelines)

    def make(day: int) -> list[Run]:
        nonlocal levels
        fresh = random.normal(size=world.pipelines)
        levels = world.correlation * levels + np.sqrt(1 - world.correlation**2) * fresh
        size = (1 + world.growth) ** day
        late = day >= _CHANGE_DAY
        made = []
        for pipeline, level in enumerate(levels):
            step = 1e-3 * 3.0**pipeline * size**follows * (1 + world.noise * level)
            step *= _code(dataclasses.replace(world, growth=0.0), day)
            step *= world.machine(day, random)
            step *= 2.5 if late and world.moves else 1.0
            jump = random.uniform(0, 2) if world.jumps and random.uniform() < 0.1 else 0.0
            figures = _figures(step, size**follows, random=random)
            evaluation = _evaluation(world, (1 - world.decay) ** day, random=random)
            gains = {}
            if world.has_baseline:
                gains = {name: 0.003 * random.normal() for name in evaluation}
            for rerun in range(1 + world.reruns):
                hours = 24 * (day - jump) + rerun
                made.append(
                    Run(
                        run_id=f"scheduled__{day}.{rerun}",
                        pipeline=f"pipeline{pipeline}",
                        node="PerfEvaluator",
                        artifact=f"{pipeline}/{day}",
                        time=_START + datetime.timedelta(hours=hours),
                        environment={
                            "device_kind": "CPU",
                            "processor": "B" if late and world.moves else "A",
                            "global_batch_size": "40",
                            "parameter_count": str(round(1e6 * size)),
                            "flops_per_step": str(round(3e6 * size)),
                        },
                        figures=figures,
                        evaluation=evaluation,
                        evaluation_gains=gains,
                    )
                )
        return made

    return make


def _figures(step: float, size: float, *, random: np.random.Generator) -> dict[str, float]:
    outliers = 1 + abs(random.normal()) * 0.005
    return {
        "step_time_seconds": step,
        "examples_per_second": 40 / (step * outliers),
        "training_memory_bytes": 1e9 * size * (1 + 0.002 * random.normal()),
        "peak_memory_share_ratio": 0.4,
        "input_wait_ratio": abs(0.02 + 0.003 * random.normal()),
        "trace_count": 2.0,
        "oom_count": 0.0,
        "train_step_count": 5000.0,
        "train_loss": 0.5 * (1 + 0.005 * random.normal()),
    }


def _evaluation(
    world: World, level: float, *, random: np.random.Generator
) -> dict[str, float]:
    # A shift of the data moves all metrics together, and each has noise of its own.
    shift = random.normal()
    return {
        name: 0.8 * level * (1 + world.data_noise * (0.8 * shift + 0.6 * random.normal()))
        for name in _METRICS
    }
