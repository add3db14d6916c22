"""Keras training in scripts and notebooks, without TFX: planned, measured and gated."""

import collections
import contextlib
import dataclasses
import datetime
import logging
import os
import pathlib
import re
import shlex
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tfx_perf
from tfx_perf import config
from tfx_perf.config import ScheduleSettings
from tfx_perf.core import cache_key, console, errors, interception, records, storage, workers
from tfx_perf.gate import decision as gate_record
from tfx_perf.gate import ledger_store, messages, verdict
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.run import Run
from tfx_perf.report import gate as gate_report
from tfx_perf.report import page as report_page
from tfx_perf.report import training as training_report
from tfx_perf.tf_internals import autograph
from tfx_perf.training import custom_loop, scaling
from tfx_perf.training import record as training_record
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.step import evaluation
from tfx_perf.training.tuning import plan_key
from tfx_perf.training.tuning.choice import PlanChoice
from tfx_perf.training.tuning.earlier import Earlier, KnownPlan
from tfx_perf.training.tuning.shared_trials import SharedTrials

_TITLE = "How the model was trained"
GATE_REPORT_FILE = "gate_report.html"
LOG_FILE = "libraries.log"
_SILENT_SECONDS = 5.0  # after which a message says that trials run
_LOGGER = logging.getLogger(__name__)

# Number of blocks of each name that have ended in this process.
_ENDED: collections.Counter[str] = collections.Counter()

# Sessions of pipeline components around this code, which write and judge the figures.
_OUTER_SESSIONS: list[TrainingSession] = []


@dataclasses.dataclass
class ScriptTraining:
    """The results of the training in a `with optimized(…)` block; known after its end.

    Attributes:
        record: figures of the `fit` with the most steps; None if there was none, or it could not be
            measured.
        decision: the gate's decision; None without `gate.baseline_uri`.
    """

    record: TrainingRecord | None = None
    decision: GateRecord | None = None


@contextlib.contextmanager
def optimized(
    settings: config.PerfConfig | Mapping[str, Any] | str | pathlib.Path | None = None,
    *,
    folder: str | pathlib.Path | None = None,
    name: str = "",
) -> Iterator[ScriptTraining]:
    """Has every `model.fit` inside train with the plan that is fastest for it, and measures it.

    Plans are tried in this process before the first step, within `training.tuning_seconds`. They
    train the same model as Keras' `fit`. With `folder`, the next run of unchanged code reuses the
    plan. With `gate.baseline_uri` in the settings, the run is compared with the blessed runs there,
    and is added to them if nothing became worse.

    Example:
        >>> with tfx_perf.optimized(folder="perf") as run:
        ...     model.fit(data, epochs=3)
        >>> run.record.figures()["examples_per_second"]

    Args:
        settings: see `docs/settings.md`; may be a dictionary, or the path of a YAML file.
        folder: for the figures and reports; each run replaces those of the previous run. None
            writes nothing.
        name: of the training; the gate uses it to tell its runs from others at the same
            `baseline_uri`.

    Raises:
        UserError: a setting is wrong, `folder` cannot be created, or `baseline_uri` cannot be read.
            At the end of the block, only if `gate.fail_pipeline` is set.
        RefusalError: the gate refuses the run, and `gate.fail_pipeline` is set.
    """
    training = ScriptTraining()
    if interception.is_capturing():  # by a component that looks for the first `fit`
        yield training
        return
    if _OUTER_SESSIONS:
        yield training
        training.record = _OUTER_SESSIONS[-1].record
        return
    settings = _settings(settings)
    folder = _absolute_folder(folder)
    with _output(settings, folder=folder, name=name) as output:
        session, figures = _new_session(settings, folder=folder, output=output)
        exit_of_code: SystemExit | None = None
        try:
            with interception.intercepting_fit(session.fit), evaluation.as_one_device():
                yield training
        except errors.TOLERATED as error:
            if isinstance(error, SystemExit) and not error.code:
                exit_of_code = error  # `absl.app.run` and click end a program this way
            else:
                _keep_figures(training, error, figures=figures, output=output)
                raise
        session.close()
        _ENDED[name] += 1
        training.record = figures()
        training.decision = output.publish(training.record, gap=session.gap)
        if exit_of_code is not None:
            raise exit_of_code


def _new_session(
    settings: config.PerfConfig, *, folder: str | None, output: "_Output"
) -> tuple[TrainingSession, Callable[[], TrainingRecord | None]]:
    """Returns a block's session, and a function for its record once the block has ended."""
    if output.log is not None:
        with contextlib.suppress(OSError):  # then it cannot be written either
            output.log.unlink(missing_ok=True)  # the previous run's
    key = _plan_key(settings)
    # Every worker reads the record; only the first worker writes it.
    file = None if folder is None else pathlib.Path(folder, training_record.FILE_NAME)
    before = _record_before(file)
    runs_before = 0 if before is None else 1 + before.runs_before
    expected_runs = settings.schedule.run_count(runs_before=runs_before)
    restart_folder = workers.restart_folder()
    runs = () if before is None else ((str(file), before),)
    earlier = Earlier(key, folder=restart_folder, runs=lambda: runs)
    choice = earlier.plan(expected_runs=expected_runs)
    trials = SharedTrials(
        settings.model_copy(update={"schedule": ScheduleSettings(expected_runs=expected_runs)}),
        known=KnownPlan(key=key, previous_plan=earlier.previous_plan),
        folder=restart_folder,
    )

    def choose(call: interception.FitCall, loop: FitLoop) -> PlanChoice:
        with _trials(settings, log=output.log):
            return trials.choose(call, loop)

    session = TrainingSession(settings, choice=choice, choose=choose, block=_block(output.name))

    def figures() -> TrainingRecord | None:
        with console.library_logs_to(output.log):  # the record compiles steps
            record = session.record
        if record is None:
            return None
        record = record.model_copy(update={"key": key, "runs_before": runs_before})
        return scaling.with_one_replica(record, [("an earlier run", each) for _, each in runs])

    return session, figures


class LoopMeter(custom_loop.Meter):
    """The `meter` of `measured`.

    Attributes:
        record: figures of the loop, known after its end; None if no step was marked.
        decision: the gate's decision, also known then; None without `gate.baseline_uri`.
    """

    record: TrainingRecord | None = None
    decision: GateRecord | None = None


@contextlib.contextmanager
def measured(
    settings: config.PerfConfig | Mapping[str, Any] | str | pathlib.Path | None = None,
    *,
    model: Any = None,
    folder: str | pathlib.Path | None = None,
    name: str = "",
) -> Iterator[LoopMeter]:
    """Measures a custom training loop, whose steps you mark, records it and has the gate judge it.

    The loop is not changed: nothing in it becomes faster. In a `run_fn` of OptimizedTrainer the
    figures become those of the component's run, and the pipeline's settings and gate apply.

    Example:
        >>> with tfx_perf.measured(folder="perf") as meter:
        ...     for epoch in range(3):
        ...         for x, y in data:
        ...             with meter.step(examples=len(x)):
        ...                 loss = train_step(x, y)
        ...         meter.end_epoch(loss=loss)

    Args:
        settings: only the section `gate` is used; see `optimized`.
        model: its parameters are counted; any object with `trainable_variables`.
        folder: see `optimized`.
        name: see `optimized`.

    Raises:
        UserError: see `optimized`.
        RefusalError: see `optimized`.
    """
    settings = _settings(settings)
    folder = _absolute_folder(folder)
    with contextlib.ExitStack() as until:
        output = None
        if not _OUTER_SESSIONS:
            output = until.enter_context(_output(settings, folder=folder, name=name))
        meter = LoopMeter(model=model)
        with meter.watching():
            yield meter
        meter.record = meter.to_record()
        gap = "no step was marked with meter.step"
        if output is not None:
            meter.decision = output.publish(meter.record, gap=gap)
        elif meter.record is not None:
            _OUTER_SESSIONS[-1].add(meter.record)
        else:
            _say(f"Nothing was measured: {gap}.")


@contextlib.contextmanager
def _trials(settings: config.PerfConfig, *, log: pathlib.Path | None) -> Iterator[None]:
    """Keeps the logs of libraries off the terminal, and prints a message if trials take long."""
    seconds = settings.training.tuning_seconds
    if not seconds:
        yield
        return
    message = f"Trying faster ways to run this fit, for at most {seconds:g} s ..."
    timer = threading.Timer(_SILENT_SECONDS, _say, [message])
    timer.start()
    try:
        with console.library_logs_to(log):  # but not in the training itself
            yield
    finally:
        timer.cancel()


def _keep_figures(
    training: ScriptTraining,
    error: BaseException,
    *,
    figures: Callable[[], TrainingRecord | None],
    output: "_Output",
) -> None:
    """Keeps the figures from before an error in the user's code, if possible; never hides it."""
    try:
        training.record = figures()
        if training.record is not None:
            output.keep(training.record, error)
    except errors.TOLERATED:
        _LOGGER.warning("The figures are lost, after %s.", type(error).__name__, exc_info=True)


def _block(name: str) -> str:
    """Returns the name of a block's checkpoint folder, the same again after an interruption."""
    if not isinstance(name, str):
        raise errors.UserError(f"Expected a text. Received: name={name!r}.")
    number = _ENDED[name]
    if not (name or number):
        return ""
    words = re.sub(r"[^\w.-]+", "-", name)
    return f"block-{words}.{number}"


@contextlib.contextmanager
def inside(session: TrainingSession) -> Iterator[None]:
    """Has `optimized` and `measured` in the code inside leave their figures to a session."""
    _OUTER_SESSIONS.append(session)
    try:
        yield
    finally:
        _OUTER_SESSIONS.pop()


@dataclasses.dataclass(frozen=True)
class _Output:
    """Outputs of a block: figures and reports in a folder, if any, and the gate's decision."""

    settings: config.PerfConfig
    name: str
    folder: pathlib.Path | None

    @property
    def log(self) -> pathlib.Path | None:
        """The file for logs of libraries while plans are tried."""
        return None if self.folder is None else self.folder / LOG_FILE

    def publish(self, training: TrainingRecord | None, *, gap: str) -> GateRecord | None:
        """Writes and prints the figures; returns the gate's decision if there is a gate.

        Only the first of several workers does so. If `training` is None, `gap` says why, and with
        `gate.fail_pipeline` the run is refused.
        """
        if not workers.this().is_chief:
            return None
        gate = self.settings.gate
        if training is None:
            message = f"Nothing was measured: {gap}."
            if gate.fail_pipeline:
                raise errors.RefusalError(message)
            _say(message)
            return None
        page = self._report_on(training)
        _say(page.verdict, *_report_line(self._write_training(training, page)))
        try:
            return self._judge(training) if gate.baseline_uri else None
        except errors.UserError as error:  # new since the block began; the model is not saved yet
            if gate.fail_pipeline:
                raise
            _say(f"The gate has neither blessed nor recorded this run: {error}")
            return None

    def keep(self, training: TrainingRecord, error: BaseException) -> None:
        """Writes the figures from before an error in the user's code, and prints a line on them."""
        if not workers.this().is_chief:
            return
        report = self._write_training(training, self._report_on(training))
        outcome = "run.record, of `optimized(…) as run`, has its figures"
        if report is not None:
            outcome = f"its figures and its plan are kept. Report: {report}"
        unjudged = " The gate has not judged it." if self.settings.gate.baseline_uri else ""
        _say(f"model.fit had ended before {type(error).__name__} was raised: {outcome}.{unjudged}")

    def _report_on(self, training: TrainingRecord) -> report_page.Report:
        runs_are_planned = self.settings.schedule.expected_runs is not None
        return training_report.report_on(training, title=_TITLE, runs_are_planned=runs_are_planned)

    def _write_training(
        self, training: TrainingRecord, page: report_page.Report
    ) -> pathlib.Path | None:
        is_written = self._write(training_record.FILE_NAME, training)
        return self._write(report_page.FILE_NAME, page) if is_written else None

    def _write(
        self, file_name: str, content: records.Record | report_page.Report
    ) -> pathlib.Path | None:
        """Writes and returns a file; None if that fails, since the model is not saved yet."""
        if self.folder is None:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # it may have been removed
            content.write(self.folder / file_name)
        except OSError as error:
            _say(f"Could not be written: {error}")
            return None
        return self.folder / file_name

    def _judge(self, training: TrainingRecord) -> GateRecord:
        settings = self.settings.gate
        now = datetime.datetime.now(datetime.timezone.utc)
        known = ledger_store.known(settings)
        run = Run.of_training(
            training,
            figures={},
            settings=settings,
            run_id=now.isoformat(timespec="microseconds"),
            pipeline=self.name,
            source=self.folder and str(self.folder),
            is_of_script=True,
        )
        decision = verdict.evaluate(run, ledger=known, settings=settings)
        self._write(gate_record.FILE_NAME, decision)
        page = gate_report.report_on(decision)
        report = self._write(GATE_REPORT_FILE, page)
        gate_report.add_to_job_summary(decision)
        evaluation = (self.folder or pathlib.Path()) / gate_record.FILE_NAME
        uri = shlex.quote(str(settings.baseline_uri))
        which = f"{shlex.quote(str(evaluation))} --reason TEXT --baseline-uri {uri}"
        details = [*messages.lines(decision, run_to_bless=which)][1:]
        if self.folder is None and not decision.blessed:
            details[-1] = "  To accept such a run, give the block a folder: tfx-perf bless needs it"
        ledger_store.extended(known, decision, settings=settings)
        _say(page.verdict, *details, *_report_line(report))
        if settings.fail_pipeline and not decision.blessed:
            raise errors.RefusalError(decision.headline)
        return decision


def _report_line(report: pathlib.Path | None) -> list[str]:
    return [] if report is None else [f"  report: {report}"]


def _say(*lines: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # full or closed; the model is not saved yet
        print(*lines, sep="\n", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _output(
    settings: config.PerfConfig, *, folder: str | pathlib.Path | None, name: str
) -> Iterator[_Output]:
    """Creates the folder and reads the baseline, so that errors are raised before the training.

    Removes a folder that it created if nothing was written. Of several workers, the chief has one.
    """
    gate = settings.gate
    if not gate.baseline_uri and (gate.rules or gate.fail_pipeline):
        raise errors.UserError(
            "Expected a folder of blessed runs, for gate.rules and gate.fail_pipeline of a script. "
            f"Received: gate.baseline_uri={gate.baseline_uri!r}."
        )
    ledger = gate.baseline_uri
    is_local = ledger and not storage.is_remote(ledger)
    if folder and ledger and is_local and os.path.abspath(ledger) == os.path.abspath(folder):
        raise errors.UserError(
            "Expected another folder for the ledger than for the figures. Received: "
            f"gate.baseline_uri={gate.baseline_uri!r}, folder={str(folder)!r}."
        )
    ledger_store.known(gate)
    if folder is None or not workers.this().is_chief:
        yield _Output(settings, name, None)
        return
    place = pathlib.Path(folder)
    was_there = place.is_dir()
    with errors.writing_to("folder", place):
        place.mkdir(parents=True, exist_ok=True)
    output = _Output(settings, name, place)
    try:
        yield output
    finally:
        if not was_there:
            with contextlib.suppress(OSError):  # it is not empty
                place.rmdir()


def _absolute_folder(folder: str | pathlib.Path | None) -> str | None:
    """Returns an absolute path: the user's code may change the working folder."""
    if folder is None:
        return None
    if not str(folder) or storage.is_remote(folder):
        raise errors.UserError(
            f"Expected a local folder. Received: folder={str(folder)!r}. Copy it to a store after "
            "the block; gate.baseline_uri may be remote."
        )
    return os.path.abspath(os.path.expanduser(folder))


def _settings(given: Any) -> config.PerfConfig:
    is_file = isinstance(given, str | pathlib.Path)
    read = config.PerfConfig.from_yaml(given) if is_file else config.PerfConfig.of(given)
    training = _absolute(read.training, "checkpoint_folder")
    return read.model_copy(
        update={"training": training, "gate": _absolute(read.gate, "baseline_uri")}
    )


def _absolute(section: Any, name: str) -> Any:
    path = getattr(section, name)
    if path is None or storage.is_remote(path):
        return section
    return section.model_copy(update={name: os.path.abspath(path)})


def _plan_key(settings: config.PerfConfig) -> dict[str, str]:
    """Returns what the plan depends on; empty if the code has no file, as in a notebook."""
    code = _code_digest()
    if code is None:
        return {}
    return plan_key.plan_key(
        settings,
        code=code,
        hyperparameters="",
        data="",
        input_candidate="",
        worker_count=workers.this().count,
    )


def _code_digest() -> str | None:
    """Returns a digest of all loaded code that is not installed; None if it cannot be read."""
    if not getattr(sys.modules["__main__"], "__file__", None):
        return None
    installed = tuple(
        f"{sysconfig.get_path(path)}/" for path in ("stdlib", "platstdlib", "purelib", "platlib")
    )
    files = {
        getattr(module, "__file__", None)
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] != tfx_perf.__name__  # may be outside of `installed`
    }
    users = sorted(
        file
        for file in files
        if file
        and not file.startswith(installed)
        # Generated from other files, in an order that changes from process to process.
        and autograph.GENERATED_PREFIX not in file
    )
    try:
        return cache_key.digest(*(pathlib.Path(file).read_bytes() for file in users))
    except OSError:  # in an archive, or removed since
        return None


def _record_before(file: pathlib.Path | None) -> TrainingRecord | None:
    if file is not None and file.exists():
        with contextlib.suppress(errors.UserError):  # of another version; trials find a new plan
            return TrainingRecord.read(file)
    return None
