"""What the ledger keeps, what it compares and what it refuses to read."""

import pytest
from gate_runs import ELSEWHERE, HERE, run

from tfx_perf import errors, fingerprint
from tfx_perf.gate.ledger import Ledger


def names(ledger):
    return [entry.run_id for entry in ledger.entries]


def test_the_last_runs_are_kept_and_the_old_ledger_is_untouched():
    ledger = Ledger()
    for name in "abcd":
        ledger = ledger.append(run(name), keep=3)
    assert names(ledger) == ["b", "c", "d"]
    assert names(ledger.append(run("e"), keep=1)) == ["e"]
    assert names(ledger) == ["b", "c", "d"]


def test_a_run_that_is_evaluated_again_counts_once():
    ledger = Ledger(entries=(run("a", train_loss=1.0), run("b")))
    again = ledger.append(run("a", train_loss=2.0), keep=8)
    assert names(again) == ["b", "a"]
    assert again.entries[-1].figures == {"train_loss": 2.0}


def test_only_equal_environments_are_comparable():
    ledger = Ledger(entries=(run("a"), run("b", environment=ELSEWHERE), run("c")))
    assert [entry.run_id for entry in ledger.comparable(HERE)] == ["a", "c"]
    assert ledger.comparable({}) == ()


def test_differences_name_both_values_and_what_only_one_side_has():
    assert fingerprint.differences({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == {}
    assert fingerprint.differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == {
        "a": ("1", fingerprint.ABSENT),
        "b": ("2", "3"),
        "c": (fingerprint.ABSENT, "4"),
    }


def test_a_ledger_survives_the_disk(tmp_path):
    ledger = Ledger(entries=(run("a", step_time_seconds=0.1),))
    ledger.write(tmp_path / "ledger.json")
    assert Ledger.read(tmp_path / "ledger.json") == ledger


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"schema": "tfx_perf.ledger/1", "entr',
        '{"schema": "tfx_perf.ledger/2", "entries": []}',
        '{"entries": []}',
        "[]",
        '{"schema": "tfx_perf.ledger/1", "entries": [{"run_id": "a"}]}',
    ],
)
def test_a_corrupt_or_foreign_ledger_is_refused(tmp_path, text):
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(errors.UserError, match="Received"):
        Ledger.read(path)
    assert path.read_text() == text
