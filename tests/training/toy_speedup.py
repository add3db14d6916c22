"""A speedup in one class, through trials and a training; run as a script, prints JSON.

Arguments: the Keras package and the code of CONTRIBUTING.md, which defines a speedup.
"""

import importlib
import json
import sys

from tfx_perf.training.speedups import SPEEDUPS, Speedup


class Elsewhere(Speedup):
    """Needs a process that is never started."""

    name = "elsewhere"
    expected_share = 0.9

    def plans(self, fit, base):
        return [base.model_copy(update={self.name: True})]

    def environment(self):
        return {"NOBODY_SETS": "1"}


def main(package, contributed):
    names = {}
    exec(contributed, names)
    for each in (names["Uncollected"](), Elsewhere()):
        SPEEDUPS[each.name] = each  # before the plan is imported, which reads it
    import model_cases

    from tfx_perf.training.session import TrainingSession

    session = TrainingSession(model_cases.settings_that_try())
    model = model_cases.dense(importlib.import_module(package))
    data = model_cases.regression().repeat()
    session.fit(model_cases.captured(model, data, steps_per_epoch=20))
    record = session.record
    found = {
        "trials": {str(trial.plan): trial.status for trial in record.trials},
        "without_environment": next(t.reason for t in record.trials if t.plan.elsewhere),
        "is_read_again": type(record).from_text(record.to_text(), source="text") == record,
        "step_count": int(model.optimizer.iterations),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
