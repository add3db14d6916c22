"""The ledger: runs that it keeps, compares, and refuses to read."""

import itertools
import json

import pytest
from gate_runs import ELSEWHERE, run
from ledger_cases import act, ledger, names

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import cache_key, errors
from tfx_perf.gate.baseline import Case
from tfx_perf.gate.ledger import Ledger


def comparable(ledger, candidate):
    return Case(candidate, ledger, GateSettings()).comparable


def test_the_first_and_last_runs_are_kept_and_the_old_ledger_is_untouched():
    grown = Ledger()
    for minute, name in enumerate("abcdefghi"):
        grown = grown.append(run(name, minute), keep=3)
    assert names(grown.entries) == [*"abcde", "g", "h", "i"]
    assert names(grown.append(run("j", 9), keep=1).entries) == [*"abcde", "j"]
    assert names(grown.entries) == [*"abcde", "g", "h", "i"]


def test_a_clock_that_was_ahead_does_not_freeze_the_ledger():
    grown = Ledger(entries=tuple(run(f"ahead{day}", 43_200 + day) for day in range(3)))
    for minute, name in enumerate("abc"):
        for _ in range(2):  # judging a run again changes nothing
            grown = grown.append(run(name, minute), keep=3)
    assert names(grown.entries)[-3:] == ["a", "b", "c"]
    # The clock of another pipeline's machine is none of this one's business.
    ahead = Ledger(entries=(run("ahead", 43_200, pipeline="other", node="gate"),))
    own = run("a", 1, pipeline="taxi", node="gate")
    assert own in ahead.append(own, keep=3).entries


def test_runs_of_another_environment_displace_none():
    mixed = ledger("a", "b")
    for minute in range(2, 12):
        mixed = mixed.append(run(f"far{minute}", minute, environment=ELSEWHERE), keep=2)
    far = [f"far{minute}" for minute in (2, 3, 4, 5, 6, 10, 11)]
    assert names(mixed.entries) == ["a", "b", *far]


def test_a_ledger_stays_small_however_many_environments_there_are():
    many = Ledger(
        entries=tuple(
            run(str(minute), minute, environment={"code": str(minute)}) for minute in range(500)
        )
    )
    assert names(many.last(8).entries) == [str(minute) for minute in range(435, 500)]


def test_a_run_that_is_evaluated_again_counts_once():
    first = Ledger(entries=(run("a", train_loss=1.0), run("b", 1)))
    again = first.append(run("a", 2, train_loss=2.0), keep=8)
    assert names(again.entries) == ["b", "a"]
    assert again.entries[-1].figures == {"train_loss": 2.0}
    assert names(first.without(run("a")).entries) == ["b"]


def test_runs_of_several_pipelines_and_trainers_may_share_an_id():
    places = [("taxi", "Gate"), ("taxi", "Gate.wide"), ("orders", "Gate")]
    runs = [
        run("scheduled__1", minute, pipeline=pipeline, node=node)
        for minute, (pipeline, node) in enumerate(places)
    ]
    grown = Ledger()
    for entry in runs:
        grown = grown.append(entry, keep=8)
    assert grown.entries == tuple(runs)
    assert comparable(grown, run("new", pipeline="taxi", node="Gate")) == (runs[0],)
    unblessed = act("unbless", "scheduled__1", 9, pipeline="taxi", node="Gate.wide")
    decided = grown.merge(Ledger(acts=(unblessed,)))
    assert (decided.entries, decided.withdrawn) == ((runs[0], runs[2]), (runs[1],))


def test_entries_of_earlier_versions_belong_to_any_pipeline():
    old = Ledger(entries=(run("a"),), acts=(act("unbless", "b", 5),))
    assert names(comparable(old, run("new", pipeline="taxi", node="Gate"))) == ["a"]
    assert old.append(run("b", 1, pipeline="taxi"), keep=8).withdrawn


def test_a_training_that_several_runs_take_from_the_cache_counts_once():
    grown = Ledger()
    for minute, name in enumerate("abcd"):
        cached = "t1" if minute < 3 else "t2"
        entry = run(name, minute, pipeline="taxi", artifact=cached)
        assert "t1" not in {known.artifact for known in grown.without(entry).entries} or minute == 3
        grown = grown.append(entry, keep=8)
    assert names(grown.entries) == ["a", "d"]


def test_a_training_that_a_person_has_unblessed_does_not_return_from_the_cache():
    first = Ledger(entries=(run("a", pipeline="taxi", artifact="t1"),))
    out = first.merge(Ledger(acts=(act("unbless", "a", 1),)))
    for minute, name in ((2, "b"), (9, "a")):
        out = out.append(run(name, minute, pipeline="taxi", artifact="t1"), keep=8)
        assert out.entries == ()
        assert names(out.withdrawn) == ["a"]


def test_the_pinned_run_is_kept_regardless_of_age():
    grown = Ledger()
    for minute in range(20):
        grown = grown.append(run(str(minute), minute), keep=3, pinned="7")
    assert names(grown.entries) == ["0", "1", "2", "3", "4", "7", "17", "18", "19"]


def test_merging_loses_nothing_in_any_order():
    parts = [
        ledger("a", "b"),
        ledger("a").append(run("c", 5), keep=8),
        Ledger(acts=(act("unbless", "b", 7),)),
        Ledger(entries=(run("d", 3),), acts=(act("bless", "d", 9),)),
    ]
    for order in itertools.permutations(parts):
        merged = Ledger().merge(*order)
        assert names(merged.entries) == ["a", "c", "d"]
        assert names(merged.withdrawn) == ["b"]
        assert merged.merge(*order) == merged
        assert merged.beyond(Ledger().merge(*order[:2])) != Ledger()
        assert order[0].beyond(merged) == Ledger()


def test_the_last_manual_act_decides_even_against_a_later_evaluation():
    acts = (act("unbless", "a", 1), act("bless", "a", 2), act("unbless", "a", 3))
    for count, counts in enumerate([True, False, True, False]):
        judged = Ledger(entries=(run("a"),)).merge(Ledger(acts=acts[:count]))
        assert bool(judged.entries) is counts
        assert bool(judged.append(run("a", 9), keep=8).entries) is counts


def test_a_run_that_a_person_blesses_counts_from_then_on():
    old = Ledger(entries=(run("old"),), acts=(act("bless", "old", 10),))
    merged = ledger("a", "b", "c").merge(old).last(2)
    assert names(merged.entries)[-2:] == ["c", "old"]


def test_only_equal_environments_are_comparable():
    mixed = Ledger(entries=(run("a"), run("b", 1, environment=ELSEWHERE), run("c", 2)))
    assert names(comparable(mixed, run("new"))) == ["a", "c"]
    assert comparable(mixed, run("new", environment={})) == ()


def test_differences_name_both_values_and_keys_of_only_one_side():
    assert cache_key.differences({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == {}
    assert cache_key.differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == {
        "a": ("1", cache_key.ABSENT),
        "b": ("2", "3"),
        "c": (cache_key.ABSENT, "4"),
    }


@pytest.fixture
def path(tmp_path):
    """The file of a ledger with a run, a withdrawn one and an act."""
    written = Ledger(entries=(run("a", step_time_seconds=1 / 3), run("b", 1)))
    written.merge(Ledger(acts=(act("unbless", "b", 2),))).write(tmp_path / "ledger.json")
    return tmp_path / "ledger.json"


def test_a_ledger_survives_the_disk_and_another_layout_of_the_file(path):
    first = Ledger.read(path)
    assert names(first.withdrawn) == ["b"]
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))
    assert Ledger.read(path) == first


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("0.333", "0.334"),
        lambda text: text.replace('"sha256"', '"sha512"'),
        lambda text: text.replace("ledger/2", "ledger/3"),
        lambda text: '{"schema": "tfx_perf.ledger/2", "entries": []}',
        lambda text: '{"entries": []}',
        lambda text: "[]",
        lambda text: "\udcff",
    ],
)
def test_a_damaged_or_foreign_ledger_is_refused_in_one_line(path, damage):
    damaged = damage(path.read_text()).encode(errors="surrogateescape")
    path.write_bytes(damaged)
    with pytest.raises(errors.UserError, match="Received") as caught:
        Ledger.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damaged
