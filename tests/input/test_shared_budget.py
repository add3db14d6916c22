"""One memory budget for all calls of a factory: what is kept and what is in use counts."""

import gc
import threading

import pytest
from record_data import write_records

from tfx_perf.input import apply, candidates, equivalence
from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.columns import Columns
from tfx_perf.input.candidates.limits import Limits

pytestmark = pytest.mark.one_case

NAMES = "columns", "block_reader"


def call(factory, source):
    return factory(list(source.file_patterns), source.options, source.schema)


def is_the_defaults(dataset, source):
    return equivalence.prefix(dataset).digest == equivalence.prefix(source.default()).digest


def budget(name, source, *, datasets):
    """Returns what so many datasets need and half of another, the last of them being loaded."""
    candidate = candidates.make(name)
    _in_use = candidate.build(source, limits=Limits(memory_bytes=2**30))
    return int((datasets + 0.5) * candidate.claimed_bytes)


def served(candidate, source, *, budget_bytes):
    """Returns what is served of what is left of the budget; None if it does not suffice."""
    gc.collect()
    limits = Limits(memory_bytes=budget_bytes - candidate.claimed_bytes)
    try:
        return candidate.build(source, limits=limits)
    except NotApplicable as refusal:
        assert "the budget is" in str(refusal)
        return None


@pytest.fixture
def folds(make_source, tmp_path):
    """Sources over three folders of as many examples."""
    found = []
    for name in "abc":
        (tmp_path / name).mkdir()
        write_records(tmp_path / name, count=3000, files=1)
        found.append(make_source(folder=tmp_path / name, num_epochs=1))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_data_in_use_count(name, folds):
    candidate, budget_bytes = candidates.make(name), budget(name, folds[0], datasets=2)
    in_use = [served(candidate, source, budget_bytes=budget_bytes) for source in folds]
    assert [dataset is not None for dataset in in_use] == [True, True, False]
    assert all(map(is_the_defaults, in_use[:2], folds))


@pytest.mark.slow
def test_data_not_in_use_are_freed(folds):
    candidate = candidates.make("block_reader")
    budget_bytes = budget("block_reader", folds[0], datasets=1)
    for source in folds:
        assert is_the_defaults(served(candidate, source, budget_bytes=budget_bytes), source)
    assert candidate.claimed_bytes <= budget_bytes


def test_a_split_stays_for_the_next_call(folds):
    candidate = candidates.make("columns")
    budget_bytes = budget("columns", folds[0], datasets=1)
    held = [served(candidate, folds[0], budget_bytes=budget_bytes) is not None]
    held += [served(candidate, source, budget_bytes=budget_bytes) is not None for source in folds]
    assert held == [True, True, False, False]


@pytest.mark.slow
def test_a_rewritten_file_replaces_its_earlier_content(make_source, tmp_path):
    candidate, budget_bytes, in_use = candidates.make("columns"), None, []
    for day in range(5):
        write_records(tmp_path, count=3000 + day, files=1)
        source = make_source(folder=tmp_path, num_epochs=1)
        budget_bytes = budget_bytes or budget("columns", source, datasets=2)
        dataset = served(candidate, source, budget_bytes=budget_bytes)
        if day == 4:  # trainings on those of the two days before still last
            assert dataset is None
            break
        assert equivalence.prefix(dataset).digest.count == 3000 + day
        if day > 1:
            in_use.append(dataset)
        del dataset


@pytest.mark.slow
def test_the_factory_keeps_the_account(folds, caplog):
    factory = apply.serving(
        candidates.make("block_reader"), folds[0].default_factory,
        memory_budget_bytes=budget("block_reader", folds[0], datasets=2),
        parser_for=lambda schema, options: folds[0].parse,
    )  # fmt: skip
    in_use = [call(factory, source) for source in folds]
    assert all(map(is_the_defaults, in_use, folds))
    assert caplog.text.count("the budget is") == 1


class Counting(Columns):
    """Counts how often it loads."""

    loads = 0

    def chunks(self, source, *, limits):
        self.loads += 1
        return super().chunks(source, limits=limits)


def test_threads_share_data_that_one_of_them_loads(make_source, caplog):
    source, candidate = make_source(num_epochs=1), Counting()
    factory = apply.serving(
        candidate, source.default_factory, memory_budget_bytes=2**30,
        parser_for=lambda schema, options: source.parse,
    )  # fmt: skip
    digests = []
    threads = [
        threading.Thread(
            target=lambda: digests.append(equivalence.prefix(call(factory, source)).digest)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digests == 4 * [equivalence.prefix(source.default()).digest]
    assert candidate.loads == 1
    assert not caplog.records
