"""Records in ML Metadata outlive the version that wrote them.

`earlier_records.json` has one of each that a pipeline leaves behind, with every field set, as
version 0.1.0 wrote them.
"""

import json
import pathlib

import pytest

from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.gate.decision import GateRecord, RuleResult
from tfx_perf.gate.ledger import Ledger
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory.record import ProfileRecord
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.speedups.plan import TrainingPlan

RECORDS = (TrainingRecord, TuningRecord, ProfileRecord, GateRecord, Ledger, MissingMeasurement)
WRITTEN = json.loads(pathlib.Path(__file__).with_name("earlier_records.json").read_text())


RENAMED = {
    name: new
    for record in (TrainingPlan, TrainingRecord, RuleResult, GateRecord)
    for name, new in record.RENAMED.items()
}


def kept_of(written, read):
    """Returns what of a written document the read one still has fields for, by today's names."""
    if isinstance(written, dict) and isinstance(read, dict):
        names = {name: name if name in read else RENAMED.get(name) for name in written}
        return {new: kept_of(written[old], read[new]) for old, new in names.items() if new in read}
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return [kept_of(*pair) for pair in zip(written, read, strict=True)]
    return written


def fields_of(read, written):
    """Returns what of the read document the written one has, too: fields have been added since."""
    if isinstance(written, dict) and isinstance(read, dict):
        return {name: fields_of(read[name], value) for name, value in written.items()}
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return [fields_of(*pair) for pair in zip(read, written, strict=True)]
    return read


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_an_earlier_version_wrote_is_read_with_its_values(record):
    document = next(each for each in WRITTEN if each["schema"] == record.SCHEMA)
    read = record.from_text(json.dumps(document), source="an earlier version")
    read = read.model_dump(mode="json")
    written = kept_of(document, read)
    changed = {name for name in written if written[name] != fields_of(read[name], written[name])}
    assert not changed
    assert len(written) > len(document) / 2, "nearly nothing of it is read"
