"""The gate's own verdicts on simulated histories."""

import datetime

import numpy as np

from benchmarks.gate.histories import METRICS, Histories
from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

# The meaning of the metrics does not matter here, so all have the noise expected of a time.
KEYS = (
    "step_time_seconds", "peak_memory_bytes", "peak_rss_bytes", "step_peak_bytes", "train_loss",
    "validation_loss", "activation_bytes", "bytes_per_example", "cost_per_million_examples",
)  # fmt: skip
SETTINGS = GateSettings(
    rules=dict.fromkeys(KEYS, Rule(tolerance=0.03, expected_std=0.01)),
    use_defaults=False,
    price_per_hour=1.0,
)
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def judge(histories: Histories) -> dict[str, float]:
    """Returns the shares of histories that are refused, and of those called a regression."""
    assert len(KEYS) == METRICS
    levels = histories.levels
    refused = regressions = 0
    for history in levels:
        runs = [_run(number, history[:, number]) for number in range(history.shape[-1])]
        ledger = Ledger(entries=tuple(runs[:-1]))
        decision = evaluate(runs[-1], ledger=ledger, settings=SETTINGS)
        refused += not decision.blessed
        regressions += any(item.verdict is Verdict.REGRESSION for item in decision.outcomes)
    return {"refused": refused / len(levels), "regression": regressions / len(levels)}


def _run(number: int, figures: np.ndarray) -> Run:
    return Run(
        run_id=str(number),
        time=_START + datetime.timedelta(days=number),
        environment={},
        figures=dict(zip(KEYS, figures.tolist(), strict=True)),
    )
