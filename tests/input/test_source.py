"""What is known of a source stays known where its options are replaced, and is right there."""

import pytest
from record_data import PLACED_SCHEMA, RAGGED_SCHEMA, SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidates, limits
from tfx_perf.input import source as source_lib
from tfx_perf.input.proof import fingerprint

pytestmark = pytest.mark.each_choice

SCHEMAS = {
    "dense": SCHEMA,
    "lists": SPARSE_SCHEMA,
    "ragged": RAGGED_SCHEMA,
    "placed": PLACED_SCHEMA,
}


@pytest.mark.parametrize("options", [
    {"num_epochs": 1},
    {"num_epochs": 1, "batch_size": 7},
    {"num_epochs": None, "batch_size": 7},
    {"label_key": None},
    {"num_epochs": 1, "label_key": "number"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("num_epochs", [None, 1])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_spec_under_other_options_is_the_defaults(schema, num_epochs, options, make_source):
    source = make_source(schema=SCHEMAS[schema], num_epochs=num_epochs)
    assert source.element_spec  # it is known before
    replaced = source.replace_options(**options)
    assert replaced.element_spec == replaced.default().element_spec


def test_files_are_looked_at_once(make_source, split_folder):
    source = make_source(folder=split_folder)
    known = source.files, source.record_sizes, source.file_states
    replaced = source.replace_options(batch_size=3)
    assert all(a is b for a, b in zip(
        known, (replaced.files, replaced.record_sizes, replaced.file_states), strict=True,
    ))  # fmt: skip


def test_the_order_of_the_files_is_part_of_what_is_read(make_source, monkeypatch):
    monkeypatch.setattr(source_lib, "_files_in_turns", lambda calls: calls)  # as with many CPUs
    source = make_source(num_epochs=1, shuffle=False)
    in_turns = [source.replace_options(reader_num_threads=calls) for calls in (1, 2)]
    candidate = candidates.make("columns")
    digests = [
        fingerprint.prefix(
            candidate.build(each, limits=limits.Limits(memory_bytes=2**30))
        ).fingerprints.tolist()
        for each in in_turns
    ]
    assert digests[0] != digests[1]
    assert sorted(digests[0]) == sorted(digests[1])
