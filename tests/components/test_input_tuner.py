"""InputTuner's wiring, its executor on artifacts in temporary folders, and the child's side.

A plan that was found for other data is used once it has been verified on these.
"""

import html
import logging
import pathlib
import time

import numpy as np
import pytest
import training_cases
import tuning_cases
from gated_project import artifact_in
from google.protobuf import text_format
from perf_records import tuning_record
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils
from tfx_bsl.tfxio import dataset_options

from tfx_perf.components import examples as examples_lib
from tfx_perf.components import trainer_args, types
from tfx_perf.components.input_tuner import child, executor, previous
from tfx_perf.config import InputSettings
from tfx_perf.core import errors, metrics
from tfx_perf.input import apply, measure
from tfx_perf.input.record import DEFAULT, CandidateOutcome, MeasuredData, TuningRecord
from tfx_perf.report import input as input_report

pytestmark = pytest.mark.each_choice


@pytest.fixture
def examples(tmp_path: pathlib.Path) -> standard_artifacts.Examples:
    return tuning_cases.examples_in(tmp_path / "examples")


@pytest.fixture
def schema(tmp_path: pathlib.Path) -> standard_artifacts.Schema:
    return tuning_cases.schema_in(tmp_path / "schema")


@pytest.fixture
def inputs(examples, schema):
    return {"examples": examples, "schema": schema}


@pytest.fixture
def transform_graph(tmp_path: pathlib.Path) -> standard_artifacts.TransformGraph:
    item = standard_artifacts.TransformGraph()
    item.uri = str(tmp_path / "transform_graph")
    proto = text_format.Parse(tuning_cases.SCHEMA, schema_pb2.Schema())
    metadata_io.write_metadata(
        dataset_metadata.DatasetMetadata(proto), f"{item.uri}/transformed_metadata"
    )
    return item


@pytest.fixture
def plan_split(tmp_path, monkeypatch):
    """Runs the child's side in this process, with short blocks; for keywords see `properties`."""
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.02)
    monkeypatch.setattr(measure, "_WARM_UP_SECONDS", 0.01)

    def run(inputs, **properties) -> TuningRecord:
        plan = child.plan_split(
            inputs=json_utils.dumps({key: [value] for key, value in inputs.items()}),
            exec_properties=tuning_cases.properties(**properties),
            folder=str(tmp_path),
        )
        return TuningRecord.model_validate(plan)

    return run


def read(plan) -> TuningRecord:
    return TuningRecord.read(pathlib.Path(plan.uri) / "plan.json")


def do(folder, inputs, **properties):
    plan = types.InputPlan()
    plan.uri = str(folder / "published")
    inputs = {key: [value] for key, value in inputs.items()}
    given = tuning_cases.properties(**properties)
    executor.Executor().Do(inputs, {"input_plan": [plan]}, given)
    return plan


def assert_complete(plan):
    """Asserts that payload, report, log and custom properties exist and agree."""
    record, folder = read(plan), pathlib.Path(plan.uri)
    assert record.reason in (folder / "report.html").read_text().replace("&#39;", "'")
    assert (folder / "tuning.log").exists()
    assert plan.get_string_custom_property("chosen_candidate") == record.chosen
    for key, value in metrics.checked(record.figures()).items():
        assert plan.get_float_custom_property(key) == value


def test_publishes_a_plan_that_the_trainer_can_apply(inputs, transform_graph, tmp_path, capfd):
    body = training_cases.TWO_DEVICES + tuning_cases.training()  # valid only before data are read
    module = tuning_cases.module(tmp_path / "module.py", body, line="keras")
    given = {"module_file": module, "label_key": None, "tuning_seconds": 30}
    plan = do(tmp_path, {**inputs, "transform_graph": transform_graph}, **given)
    out, err = capfd.readouterr()
    assert not out
    assert "tensorflow" not in err  # the child's output is in its log
    assert_complete(plan)
    record = read(plan)
    assert record.example_count == tuning_cases.COUNT
    assert record.outcomes[0].name == "default"
    assert all(item.examples_per_second or item.reason for item in record.outcomes)
    assert (record.batch_size, record.training_note) == (16, "")  # as the code has it

    proto = examples_lib.read_schema({"transform_graph": [transform_graph]})
    options = dataset_options.TensorFlowDatasetOptions(
        batch_size=8, label_key="label_xf", num_epochs=1
    )
    examples = inputs["examples"]
    for name in ("default", "columns", "block_reader"):
        factory = apply.tuned_factory(
            examples_lib.default_factory([examples]),
            record.model_copy(update={"chosen": name}),
            parser_for=examples_lib.parser_for([examples]),
        )
        batches = list(factory([f"{examples.uri}/Split-train/*"], options, proto))
        numbers = np.concatenate([features["number_xf"] for features, _ in batches]).ravel()
        labels = np.concatenate([label for _, label in batches]).ravel()
        assert sorted(numbers) == list(range(tuning_cases.COUNT))
        np.testing.assert_array_equal(labels, numbers % 2)


def test_a_crash_leaves_the_default_and_the_log(inputs, tmp_path, caplog):
    body = """
def run_fn(fn_args):
    print("so far", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    module = tuning_cases.module(tmp_path / "module.py", body)
    plan = do(tmp_path, inputs, module_file=module)
    assert_complete(plan)
    record = read(plan)
    assert record.chosen == "default"
    assert "SIGKILL" in record.reason
    assert "so far" in (pathlib.Path(plan.uri) / "tuning.log").read_text()
    assert f"Log: {plan.uri}/tuning.log" in caplog.text
    remark = plan.get_string_custom_property("remark")
    assert remark == f"{record.reason} Log: {plan.uri}/tuning.log"
    assert remark in caplog.messages
    assert plan.has_custom_property("may_pass")
    assert (record.file_count, record.compression, record.key) == (1, "GZIP", {})
    assert record.file_bytes > 0


@pytest.mark.slow
def test_a_user_error_in_the_child_is_raised_as_one(inputs, tmp_path):
    with pytest.raises(errors.UserError, match=r"splits \['train', 'eval', 'empty'\]"):
        do(tmp_path, inputs, split="test")
    assert not (tmp_path / "published").exists()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"split": "empty"}, "Expected files of examples. Received: split='empty'"),
        ({"label_key": "label"}, "Received: label_key='label'"),
        ({"module_file": "no_such_module.py"}, "Received: module_file=no_such_module.py"),
    ],
)
def test_bad_input(properties, message, inputs, plan_split):
    with pytest.raises(errors.UserError, match=message) as caught:
        plan_split(inputs, **properties)
    assert "\n" not in str(caught.value)


def test_takes_the_count_of_large_data_from_statistics(inputs, tmp_path, plan_split):
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(tmp_path / "statistics")
    statistics.split_names = artifact_utils.encode_split_names(["train"])
    folder = pathlib.Path(artifact_utils.get_split_uri([statistics], "train"))
    folder.mkdir(parents=True)
    proto = statistics_pb2.DatasetFeatureStatisticsList()
    proto.datasets.add().num_examples = 12345
    (folder / "FeatureStats.pb").write_bytes(proto.SerializeToString())
    # Too little time to read an epoch, so that nothing is counted.
    inputs = {**inputs, "statistics": statistics}
    record = plan_split(inputs, batch_size=16, tuning_seconds=1e-6)
    assert record.example_count == 12345
    assert record.chosen == "default"
    assert record.needs_another_search  # with more time its outcome would differ
    assert record.reason.endswith("(1e-06): raise it. The next run searches again.")


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("def run_fn(fn_args): pass", "NoFitError: Expected the training code to call"),
        ("def run_fn(fn_args): 1 / 0", "ZeroDivisionError: division by zero"),
        ("def run_fn(fn_args): raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_without_a_usable_training_the_input_is_measured_alone(
    body, note, inputs, tmp_path, plan_split
):
    module = tuning_cases.module(tmp_path / "module.py", body)
    record = plan_split(inputs, module_file=module, tuning_seconds=2)
    assert record.training_note.startswith(note)
    assert f"Measured without the training code's step: {note}" in record.remark
    assert record.remark.splitlines() == [record.remark]
    page = html.unescape(input_report.report_on(record).render())
    assert f"{record.reason} {record.training_remark}" in page
    assert (record.batch_size, record.example_count) == (256, tuning_cases.COUNT)


def test_the_codes_batch_size_is_measured_in_the_precision_that_trains(
    inputs, tmp_path, plan_split
):
    told = tmp_path / "policies.txt"
    line = f"print(keras.mixed_precision.global_policy().name, file=open({str(told)!r}, 'a'))"
    body = tuning_cases.training().replace("    data = read(", f"    {line}\n    data = read(")
    module = tuning_cases.module(tmp_path / "module.py", body, line="keras")
    given = {"module_file": module, "batch_size": 32}
    name = "mixed_bfloat16"
    record = plan_split(inputs, **given, tuning_seconds=2, precision=name)
    assert set(told.read_text().split()) == {name}
    assert record.batch_size == 16


def test_a_training_that_must_be_exact_keeps_the_defaults_order(inputs, tmp_path, plan_split):
    module = tuning_cases.module(tmp_path / "module.py", tuning_cases.training(), line="keras")
    record = plan_split(inputs, module_file=module, excluded_speedups=("inexact",))
    assert record.chosen == DEFAULT
    assert record.reason.startswith("The default stays: a training that must be reproducible")


class TestReuse:
    """A plan of an earlier run, found by its key."""

    KEY = {"data": "1", "settings": "2"}
    SETTINGS = InputSettings(tuning_seconds=20)

    def find(self, plans, source, settings=SETTINGS):
        return previous.find(plans, self.KEY, source=source, settings=settings)

    @pytest.fixture
    def source(self, examples):
        proto = text_format.Parse(tuning_cases.SCHEMA, schema_pb2.Schema())
        return examples_lib.record_source(
            [examples], split="train", schema=proto, batch_size=8, label_key=None
        )

    @pytest.fixture
    def made(self, tmp_path):
        """Creates a plan of that name in a folder; later plans are newer."""
        ids = iter(range(100))

        def make(name, **fields):
            item = artifact_in(tmp_path / name, types.InputPlan)
            item.id = next(ids)
            tuning_record(**{"key": self.KEY, **fields}).write(tmp_path / name / "plan.json")
            return item

        return make

    def test_the_newest_with_the_same_key_is_used(self, made, source):
        plans = [made("a"), made("b", margin=0.5), made("c", key={"data": "1", "settings": "0"})]
        began = time.monotonic()
        found = self.find(plans, source)
        assert 0 < found.tuning_time_seconds <= time.monotonic() - began
        update = {"reused_from": plans[1].uri, "tuning_time_seconds": found.tuning_time_seconds}
        assert found == read(plans[1]).model_copy(update=update)
        html = input_report.report_on(found).render()
        assert "From cache: data" in html
        assert "other data" not in html
        found = self.find([*plans, made("d", reused_from="/first")], source)
        assert found.reused_from == "/first"  # it still names the run that measured

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"key": {"data": "1", "settings": "0"}}, "settings 0 -> 2."),
            ({"chosen": "serialized_cache"}, "this version has no candidate serialized_cache."),
        ],
    )
    def test_what_differs_is_logged(self, fields, words, made, source, caplog):
        caplog.set_level(logging.INFO)
        plan = made("a", **fields)
        assert self.find([plan], source) is None
        assert f"The plan in {plan.uri} is not used again: {words}" in caplog.text

    def test_missing_and_foreign_plans_are_skipped(self, made, source, caplog):
        fitting, foreign, missing = made("a"), made("foreign"), made("missing")
        path = pathlib.Path(foreign.uri) / "plan.json"
        path.write_text('{"schema": "tfx_perf.input/1"}')
        (pathlib.Path(missing.uri) / "plan.json").unlink()
        found = self.find([fitting, foreign, missing], source)
        assert found.reused_from == fitting.uri
        assert len([line for line in caplog.messages if "plan is skipped" in line]) == 2

    def test_an_unfinished_search_is_not_used(self, made, source):
        assert self.find([made("a", key={})], source) is None
        for rounds, key in ((measure.MIN_ROUNDS, self.KEY), (measure.MIN_ROUNDS - 1, {})):
            record = tuning_record(rounds=rounds)
            assert previous.keyed(record, self.KEY).key == key
        surely = tuning_record(rounds=2, chosen="columns")  # certain after two rounds
        assert previous.keyed(surely, self.KEY).key == self.KEY

    def test_a_search_that_ended_too_early_is_repeated_once(self, made, source):
        undecided = tuning_record(rounds=0, undecided_count=1)
        first = previous.keyed(undecided, self.KEY)
        assert (first.key, first.undecided_count) == (self.KEY, 1)
        plans = [made("first", key={**self.KEY, "data": "0"}, undecided_count=1)]
        assert self.find(plans, source) is None
        second = previous.keyed(undecided, self.KEY, plans=plans)
        assert second == previous.keyed(undecided, self.KEY, failures=1)
        assert (second.undecided_count, second.needs_another_search) == (2, False)
        assert "no run searches again" in second.reason
        plans.append(made("second", undecided_count=2))
        assert self.find(plans, source).undecided_count == 2
        other = previous.keyed(undecided, {**self.KEY, "settings": "more time"}, plans=plans)
        assert other.needs_another_search

    def of_yesterday(self, made, source, name="columns", **fields):
        """Creates a plan that chose `name` for other data of the same amount."""
        outcomes = [CandidateOutcome(name="default", description="", status="measured")]
        if name != "default":
            outcomes.append(CandidateOutcome(name=name, description="", status="chosen"))
        fields = {
            "key": {"data": "0", "settings": "2"}, "chosen": name, "outcomes": tuple(outcomes),
            "file_bytes": source.total_bytes, "example_count": 7, "checked_example_count": 7,
            "examined_state": "of yesterday's files", **fields,
        }  # fmt: skip
        return made(name, **fields)

    @pytest.mark.one_case
    @pytest.mark.parametrize("name", ["default", "columns", "columns+autotune"])
    def test_it_serves_other_data_of_about_the_same_amount(self, name, made, source):
        plan = self.of_yesterday(made, source, name, file_bytes=int(0.9 * source.total_bytes))
        found = self.find([plan], source)
        was, is_default = read(plan), name == "default"
        expected = {
            "reused_from": plan.uri,
            "key": self.KEY,
            "measured_on": MeasuredData(file_count=1, file_bytes=was.file_bytes, example_count=7),
            "file_bytes": source.total_bytes,
            "example_count": None if is_default else tuning_cases.COUNT,
            "checked_example_count": 0 if is_default else tuning_cases.COUNT,
            "examined_state": "" if is_default else source.files_digest,
            "tuning_time_seconds": found.tuning_time_seconds,
        }
        assert found == was.model_copy(update=expected)
        html = input_report.report_on(found).render()
        assert "which was measured on other data" in html
        assert ("gives the same 100 examples as the default" in html) == (not is_default)
        assert "From cache: data" not in html

    @pytest.mark.one_case
    @pytest.mark.parametrize("name", ["columns", "columns+autotune"])
    def test_it_is_kept_though_everything_else_differs(self, name, made, source):
        plan = self.of_yesterday(
            made, source, name, key={"settings": "of another version"},
            service_address="grpc://gone:1", training_digest="1",
        )  # fmt: skip
        assert self.find([plan], source) is None
        # Even a busy machine reads all examples in the check's share of this time.
        settings = InputSettings(tuning_seconds=600)
        found = previous.kept([plan], source=source, settings=settings)
        assert (found.chosen, found.service_address, found.key) == (name, None, {})
        assert (found.reused_from, found.training_digest) == (plan.uri, "")
        assert found.checked_example_count == tuning_cases.COUNT
        html = input_report.report_on(found).render()
        assert "changed since, but a search would cost more than it can save" in html
        found = found.model_copy(update={"key": self.KEY, "undecided_count": 1})
        html = input_report.report_on(found).render()
        assert "changed since, but the time of a search ended before it could tell" in html

    @pytest.mark.parametrize("name", ["default", "service", "columns+own_threads", None])
    def test_a_plan_that_may_no_longer_hold_is_not_kept(self, name, made, source):
        plans = [] if name is None else [self.of_yesterday(made, source, name)]
        assert previous.kept(plans, source=source, settings=self.SETTINGS) is None

    def test_the_statistics_count_examples_that_are_not_read(self, made, source):
        plan = self.of_yesterday(made, source, "default")
        found = previous.find(
            [plan], self.KEY, source=source, settings=self.SETTINGS, example_count=123
        )
        assert found.example_count == 123

    def test_daily_differences_do_not_add_up(self, made, source, caplog):
        caplog.set_level(logging.INFO)
        first = MeasuredData(file_count=1, file_bytes=10, example_count=7)
        plan = self.of_yesterday(made, source, reused_from="/first", measured_on=first)
        assert self.find([plan], source) is None
        assert "its data were 10 bytes, these are " in caplog.text
        first = first.model_copy(update={"file_bytes": int(0.9 * source.total_bytes)})
        plan = self.of_yesterday(
            made, source, "default", file_bytes=1, reused_from="/first", measured_on=first
        )
        found = self.find([plan], source)
        assert (found.measured_on, found.reused_from) == (first, "/first")

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"file_bytes": 100}, "its data were 100 bytes, these are "),
            ({"file_count": 2}, "its data were 2 files, these are 1"),
            ({"compression": ""}, "its data were compressed differently: not at all"),
            ({"key": {"data": "0", "settings": "3"}}, "data 0 -> 1; settings 3 -> 2"),
        ],
    )
    def test_data_of_another_kind_are_measured(self, fields, reason, made, source, caplog):
        caplog.set_level(logging.INFO)
        plan = self.of_yesterday(made, source, **fields)
        assert self.find([plan], source) is None
        assert reason in caplog.text

    def test_a_plan_that_does_not_hold_on_other_data_is_measured(self, made, source, caplog):
        caplog.set_level(logging.INFO)
        small = self.SETTINGS.model_copy(update={"memory_budget_bytes": 1})
        plan = self.of_yesterday(made, source)
        assert self.find([plan], source, settings=small) is None
        assert "on these data columns does not hold: " in caplog.text


def test_training_digest(tmp_path, monkeypatch):
    digest = trainer_args.code_digest
    assert digest(tuning_cases.properties()) == ""
    path = tmp_path / "digested_module.py"
    monkeypatch.syspath_prepend(tmp_path)
    digests = set()
    for edited in ("def run_fn(fn_args): pass", "def run_fn(fn_args): pass  # edited"):
        path.write_text(edited)
        by_file = tuning_cases.properties(module_file=str(path))
        by_name = tuning_cases.properties(run_fn="digested_module.run_fn")
        digests |= {digest(by_file), digest(by_name)}
        assert digest(by_file) == digest(by_file)
    digests.add(digest({**by_file, "train_args": "{}"}))
    digests.add(digest({**by_file, "module_file": None, "module_path": "m@/a/wheel-0.0+1.whl"}))
    assert len(digests) == 6
    with pytest.raises(errors.UserError, match="Received: no_such_module.run_fn"):
        digest(tuning_cases.properties(run_fn="no_such_module.run_fn"))
