"""InputTuner's report says what the record says."""

import pytest
from perf_records import tuning_record

from tfx_perf.core import statistics
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.record import CandidateOutcome, Confirmation
from tfx_perf.input.stages import Stage
from tfx_perf.report import input as input_report


def compared(rounds):
    """Returns the fields of a record whose comparisons took that many rounds."""
    numbers = [float(number) for number in range(2, rounds + 2)]
    rates = statistics.median_interval(numbers)
    final = Confirmation(
        candidate="columns",
        on_train_step=False,
        default_examples_per_second=rates,
        tuned_examples_per_second=rates,
        ratio=rates,
        fed_ratio=None,
        rounds=rounds,
    )
    columns = CandidateOutcome(
        name="columns", description="", status="chosen", examples_per_second=rates, ratio=rates
    )
    default = CandidateOutcome(
        name="default", description="", status="measured", examples_per_second=rates
    )
    return {"chosen": "columns", "outcomes": (default, columns), "final": final}


@pytest.mark.parametrize(
    ("rounds", "name"), [(9, "95% interval"), (3, "range of 3 rounds"), (1, None)]
)
def test_an_interval_is_called_what_it_is(rounds, name):
    html = input_report.report_on(tuning_record(**compared(rounds))).render()
    assert html.count(f"in brackets the {name}") == (2 if name else 0)
    assert ("95%" in html) == (rounds > 5)
    ratio = statistics.median_interval([float(number) for number in range(2, rounds + 2)])
    assert ("[" in html.partition("times default")[2].partition("</table>")[0]) == (rounds > 1)
    assert f"{ratio.value:.3g}" in html


def test_stages_that_were_not_measured_are_not_passed_over_in_silence():
    rates = statistics.median_interval([100.0] * 3)
    diagnosis = Diagnosis(pipeline_examples_per_second=rates, rounds=3)
    html = input_report.report_on(tuning_record(diagnosis=diagnosis)).render()
    assert html.count("Where the default&#39;s time goes") == 1
    assert "input.tuning_seconds" in html
    stage = Stage(
        name="read", seconds_per_example=1e-6, share=1, examples_per_second=1, bytes_per_second=1
    )
    diagnosis = diagnosis.model_copy(update={"stages": (stage,)})
    html = input_report.report_on(tuning_record(diagnosis=diagnosis)).render()
    assert html.count("Where the default&#39;s time goes") == 1
    assert "Not measured" not in html


@pytest.mark.parametrize(
    ("is_planned", "within"), [(True, "the 3 planned runs"), (False, "the 3 expected runs")]
)
def test_unplanned_runs_are_those_so_far(is_planned, within):
    slow, fast = (statistics.Interval(value=rate, low=rate, high=rate) for rate in (10.0, 20.0))
    final = Confirmation(
        candidate="columns",
        on_train_step=True,
        default_examples_per_second=slow,
        tuned_examples_per_second=fast,
        ratio=statistics.Interval(value=2.0, low=2.0, high=2.0),
        fed_ratio=None,
        rounds=3,
    )
    found = tuning_record(
        **{**compared(3), "final": final},
        trained_example_count=10,
        expected_runs=3,
        tuning_time_seconds=4.0,
    )
    made = input_report.report_on(found, runs_are_planned=is_planned)
    assert f"pays only after 8 runs, not within {within}." in made.verdict
