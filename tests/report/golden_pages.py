"""What reports say on stored records, as text: held by `golden/pages.json`.

`.venv/bin/python tests/report/golden_pages.py` writes that file anew; its diff shows what has
changed.
"""

import datetime
import html
import json
import pathlib
import re

from drawn import texts

from tfx_perf.gate.decision import GateRecord
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory.record import ProfileRecord
from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.report import gate as gate_report
from tfx_perf.report import history as history_report
from tfx_perf.report import input as input_report
from tfx_perf.report import memory as memory_report
from tfx_perf.report import training as training_report
from tfx_perf.training.record import TrainingRecord, XlaAccount
from tfx_perf.training.speedups.plan import PLAIN_FIT

_FOLDER = pathlib.Path(__file__).parent / "golden"
FILE = _FOLDER / "pages.json"


def _read(record_class, name):
    return record_class.read(_FOLDER / f"{name}.json")


def _history():
    """Returns the runs of a pipeline, newest first, trained alone and by two workers."""
    begun = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    return [
        RecordedRun(
            run_id=f"run-{number}", pipeline="taxi",
            created=begun - datetime.timedelta(days=number), state="complete",
            metrics={"step_time_seconds": 0.01 + number / 1e4,
                     "replica_count": 1.0 + number % 2, "worker_count": 1.0 + number % 2},
            blessed=(True, False, None)[number % 3], pushed=None, folders={},
            plans={"training plan": "Keras fit"}, note="blessed by me" if number == 4 else "",
        )
        for number in range(6)
    ]  # fmt: skip


def lines():
    """Returns the lines of each page, as a browser shows them."""
    found = {}
    for name in ("gate_refused", "gate_elsewhere", "gate_of_script"):
        record = _read(GateRecord, name)
        found[name] = _shown(gate_report.report_on(record).render())
        found[f"{name} in Markdown"] = gate_report.markdown_of(record).splitlines()
        found[f"{name} in JUnit XML"] = gate_report.junit_of(record).splitlines()
    for name in ("memory", "memory_unmeasured"):
        found[name] = _shown(memory_report.report_on(_read(ProfileRecord, name)).render())
    keys = ["step_time_seconds", "train_loss"]
    found["history"] = _shown(history_report.report_on(_history(), keys, folder=_FOLDER).render())
    reports = {name: training_report.report_on(made) for name, made in _trainings()}
    for name in ("input", "input_reused"):
        reports[name] = input_report.report_on(_read(TuningRecord, name))
    for name, made in reports.items():  # without all figures, which a new one would change
        found[name] = [made.tone, *_shown(made.render().partition("<h2>Figures</h2>")[0])]
    return found


def _trainings():
    """Yields stored trainings, and one that knows more, and one that knows little."""
    alone = _read(TrainingRecord, "training")
    yield "training", alone
    yield "training_of_two", _read(TrainingRecord, "training_of_two")
    xla = XlaAccount(compiled_shapes=("24x4, 24x1", "8x4, 8x1"), fusion_count=3)
    more = {"reused_from": "/first/run", "trial_import_seconds": 1.5, "trial_setup_seconds": 2.5}
    yield "training_of_a_plan_before", alone.model_copy(update={**more, "xla": xla})
    nothing = dict.fromkeys((
        "step_time", "mean_step_time_seconds", "step_time_p90_seconds", "global_batch_size",
        "flops_per_step", "peak_flops_per_second", "peak_source",
    ))  # fmt: skip
    little = {"plan": PLAIN_FIT, "plan_reason": "trials are off", "trials": (), "step_times": ()}
    yield "training_without_trials", alone.model_copy(update={**little, **nothing, "losses": {}})


def _shown(page):
    """Returns the texts of a page without its date; of plots those that are no numbers."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    body = re.sub(r"</h1>.*?(<div class=\"verdict)", r"</h1>\1", body, flags=re.DOTALL)
    body = re.sub(r"<svg.*?</svg>", _of_plot, body, flags=re.DOTALL).replace("<wbr>", "")
    found = (html.unescape(part) for part in re.split(r"<[^>]+>", body))
    return [" ".join(part.split()) for part in found if part.strip()]


def _of_plot(match):
    words = [text for text in texts(match.group()) if re.search("[a-z]{3}", text)]
    return f"plot: {' | '.join(words)}"


if __name__ == "__main__":
    text = json.dumps(lines(), indent=0, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")
