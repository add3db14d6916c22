"""Runs `fit` where a coordinator hands out steps to workers, and servers hold the weights."""

import collections
import contextlib
import functools
import importlib
import logging
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, interception, workers
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute.parameter_server.step_dispatcher import StepDispatcher, evaluated
from tfx_perf.tf_internals import clusters
from tfx_perf.tf_internals.built_optimizer import build_optimizer
from tfx_perf.training.fit.fit_arguments import callback_list, in_given, length_of
from tfx_perf.training.keras_api import slots
from tfx_perf.training.keras_api.base_api import all_layers
from tfx_perf.training.loop.fit_loop import FitLoop, FitResult
from tfx_perf.training.recovery import training_fingerprint
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule, CheckpointWriter
from tfx_perf.training.recovery.training_fingerprint import TrainingFingerprint
from tfx_perf.training.speedups.plan import TrainingPlan

# These update every row of an embedding, also rows whose first moment another worker has already
# written, but not yet the second, which they divide by. `ordered` makes some of them safe.
_RACING = ("Adam", "AdamW", "Adamax", "Nadam")
_PREFIX = "state"
_WHERE = "under ParameterServerStrategy"
# Otherwise each server writes its part of a checkpoint itself, to a folder it may not see.
_DEVICE = f"/job:{workers.COORDINATOR}"
_LOGGER = logging.getLogger(__name__)


class AsynchronousFit:
    """One `fit` under a `ParameterServerStrategy`; used instead of `Recovery`."""

    oom_count = 0

    def __init__(
        self,
        call: FitCall,
        loop: FitLoop,
        *,
        settings: PerfConfig,
        folder: pathlib.Path | None,
        clock: CheckpointSchedule,
    ) -> None:
        """Looks in `folder` (None: no checkpoints) for a checkpoint of this `fit`.

        Raises:
            UserError: the model is a Keras 3 model or is compiled by XLA, tf_keras cannot train on
                the data or with a callback, or the cluster has no coordinator.
        """
        if loop.keras_api.package != "tf_keras":
            raise errors.UserError(
                "Expected a model of tf_keras under ParameterServerStrategy, which Keras 3 does "
                f"not support. Received: model={type(call.model).__module__}."
                f"{type(call.model).__name__}. Import tf_keras instead of keras, or use "
                "MultiWorkerMirroredStrategy."
            )
        if call.model.jit_compile:
            raise errors.UserError(
                "Expected a model that is not compiled by XLA under ParameterServerStrategy: XLA "
                "cannot read the servers' variables. Received: jit_compile=True. Remove it from "
                "compile."
            )
        watching = loop.keras_api.callbacks.TerminateOnNaN
        if any(isinstance(each, watching) for each in callback_list(call.arguments["callbacks"])):
            raise errors.UserError(
                "Expected callbacks that do not read the loss of each step under "
                "ParameterServerStrategy, where it stays on a worker. Received: TerminateOnNaN. "
                "Check logs['loss'] in on_epoch_end of your own callback."
            )
        self._call, self._loop = call, loop
        self._settings, self._clock = settings.training, clock
        self._cluster = clusters.cluster_of(call.model.distribute_strategy)
        if workers.COORDINATOR not in self._cluster:
            raise errors.UserError(
                f"Expected a cluster with a {workers.COORDINATOR}, the process that coordinates. "
                f"Received: {', '.join(self._cluster)}. Workers take their data from its address."
            )
        self._length = epoch_length(call.arguments)
        self._fingerprint = TrainingFingerprint({}, {})
        self._store: CheckpointStore | None = None
        # A DatasetCreator cannot be compared with that of an earlier run.
        if folder is not None and isinstance(call.arguments["x"], tf.data.Dataset):
            self._fingerprint = training_fingerprint.of(
                call, keras_api=loop.keras_api, train_length=loop.train_length, settings=settings
            )
            self._store = CheckpointStore(folder / self._fingerprint.folder_name)
        self._found = self._store.latest() if self._store else None
        self._save_seconds = 0.0

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan of the training to resume; None without a checkpoint."""
        return self._found[1].plan if self._found else None

    @property
    def step(self) -> int | None:
        """The step to resume from; None without a checkpoint."""
        return self._found[1].step if self._found else None

    def fit(self, plan: TrainingPlan, *, plain_step_seconds: float | None = None) -> FitResult:
        """Runs `fit` with the plan's steps per execution; no trials have timed plain steps."""
        assert plain_step_seconds is None
        model, arguments = self._call.model, self._call.arguments
        if self._found:
            _restore(model, self._found[0])
        begin, length = self.step or 0, self._length
        worker_count = len(self._cluster["worker"])
        notes = self._hazards(worker_count)
        writer = CheckpointWriter(self._store, clock=self._clock, settings=self._settings)
        writer.step = begin
        passed_epochs, passed_steps = divmod(begin, length)
        step_dispatcher = StepDispatcher(
            model,
            self._loop.keras_api,
            worker_count=worker_count,
            epoch_length=length,
            passed_steps=passed_steps,
            on_look=functools.partial(self._save_if_due, writer, plan),
        )
        self._loop.timer = step_dispatcher.timer
        host = self._cluster[workers.COORDINATOR][0].rpartition(":")[0]
        callbacks = [step_dispatcher.callback(), *callback_list(arguments["callbacks"])]
        with (
            served(arguments["x"], host=host, step=begin) as data,
            step_dispatcher.taken_over(steps_per_execution=plan.steps_per_execution),
            ordered(model.optimizer),
            evaluated(model, worker_count=worker_count),
            in_given(arguments["callbacks"], callbacks, model=model) as used,
        ):
            history = self._call.proceed(
                x=data,
                steps_per_epoch=length,
                callbacks=used,
                initial_epoch=arguments["initial_epoch"] + passed_epochs,
            )
        return FitResult(
            history,
            step_dispatcher.timer,
            plan=plan,
            notes=(*notes, *([writer.note.rstrip(".")] if writer.note else [])),
            resumed_step=self.step,
            checkpoint_time_seconds=self._save_seconds,
        )

    def _hazards(self, worker_count: int) -> tuple[str, ...]:
        """Returns sentences on how several workers may damage the weights."""
        model, optimizer = self._call.model, self._call.model.optimizer
        embedding = self._loop.keras_api.layers.Embedding
        has_embedding = any(isinstance(layer, embedding) for layer in all_layers(model))
        name = type(optimizer).__name__
        is_safe = name not in _RACING or is_orderable(optimizer)
        if worker_count == 1 or is_safe or not has_embedding:
            return ()
        note = (
            f"{name} updates all rows of an embedding at every step, including rows that another "
            "worker is updating, which may corrupt them; Adagrad and SGD do not, nor do "
            "tf_keras.optimizers.Adam and AdamW without amsgrad"
        )
        _LOGGER.warning("%s.", note)
        return (note,)

    def _save_if_due(self, writer: CheckpointWriter, plan: TrainingPlan, trained: int) -> None:
        step, store = (self.step or 0) + trained, self._store
        if store is not None and writer.is_due(step, is_last=False):
            began = time.perf_counter()
            writer.save(step, lambda: store.save(functools.partial(self._fill, step, plan)))
            self._save_seconds += time.perf_counter() - began

    def _fill(self, step: int, plan: TrainingPlan, folder: pathlib.Path) -> Checkpoint:
        _save(self._call.model, folder)
        epoch, step_in_epoch = divmod(step, self._length)
        return Checkpoint(
            step=step,
            epoch=epoch,
            step_in_epoch=step_in_epoch,
            fingerprint=self._fingerprint.fields,
            values=self._fingerprint.values,
            plan=plan,
        )


def _save(model: Any, folder: pathlib.Path) -> None:
    """Writes the variables while workers keep training; each has its value when it is read."""
    options = tf.train.CheckpointOptions(experimental_io_device=_DEVICE)
    tf.train.Checkpoint(model=model).write(str(folder / _PREFIX), options)


def _restore(model: Any, folder: pathlib.Path) -> None:
    """Restores the variables; those that do not exist yet, when they are created."""
    build_optimizer(model)
    options = tf.train.CheckpointOptions(experimental_io_device=_DEVICE)
    tf.train.Checkpoint(model=model).read(str(folder / _PREFIX), options)


def is_orderable(optimizer: Any) -> bool:
    """Returns whether `ordered` changes the updates of an optimizer."""
    optimizers = importlib.import_module("tf_keras.optimizers")
    known = (optimizers.Adam.update_step, optimizers.AdamW.update_step)
    update_step = getattr(type(optimizer), "update_step", None)  # legacy ones have none
    return update_step in known and not optimizer.amsgrad


@contextlib.contextmanager
def ordered(optimizer: Any) -> Iterator[None]:
    """Orders the updates of moments that are traced in the context, if orderable; same results."""
    if not is_orderable(optimizer):
        yield
        return

    def ordering(original: Callable[..., None]) -> Callable[..., None]:
        def update_step(gradient: Any, variable: Any) -> None:
            if isinstance(gradient, tf.IndexedSlices):
                _update(optimizer, gradient, variable)
            else:
                original(gradient, variable)

        return update_step

    with interception.replacing(optimizer, "update_step", ordering):
        yield


def _update(optimizer: Any, gradient: tf.IndexedSlices, variable: Any) -> None:
    """Applies a sparse gradient as Adam and AdamW do: Kingma and Ba (2014), before section 2.1."""
    first, second = slots.adam_moments(optimizer, variable)
    rate, count, beta_1, beta_2 = (
        tf.cast(value, variable.dtype)
        for value in (
            optimizer.learning_rate, optimizer.iterations + 1, optimizer.beta_1, optimizer.beta_2,
        )
    )  # fmt: skip
    scale = rate * tf.sqrt(1 - beta_2**count) / (1 - beta_1**count)
    epsilon = optimizer.epsilon
    if getattr(optimizer, "adaptive_epsilon", False):
        epsilon *= tf.sqrt(1 - beta_2**count)
    # In Python's float precision, as in tf_keras.
    new_1, new_2 = 1 - optimizer.beta_1, 1 - optimizer.beta_2
    second.assign_add(-second * new_2)
    written = second.scatter_add(_slices(tf.square(gradient.values) * new_2, gradient))
    with tf.control_dependencies([written]):
        first.assign_add(-first * new_1)
        first.scatter_add(_slices(gradient.values * new_1, gradient))
        numerator = first.read_value() * scale
    with tf.control_dependencies([numerator]):
        variable.assign_sub(numerator / (tf.sqrt(second.read_value()) + epsilon))


def _slices(values: tf.Tensor, like: tf.IndexedSlices) -> tf.IndexedSlices:
    return tf.IndexedSlices(values, like.indices)


def epoch_length(arguments: dict[str, Any]) -> int:
    """Returns the steps of an epoch over all workers, from the arguments of `fit`.

    Raises UserError if tf_keras cannot train on the data, or if an epoch would never end.
    """
    data, validation = arguments["x"], arguments["validation_data"]
    # A callable makes a dataset: a DatasetCreator of tf_keras.
    if not (isinstance(data, tf.data.Dataset) or callable(data)):
        raise errors.UserError(
            f"Expected x to be a tf.data.Dataset {_WHERE}. Received: x={type(data).__name__}. "
            "For arrays, use tf.data.Dataset.from_tensor_slices((x, y)).batch(size)."
        )
    length = length_of(data, arguments["steps_per_epoch"])
    if length == 0:
        raise errors.UserError("Expected training data. Received: x of 0 batches.")
    if not length:
        raise errors.UserError(
            f"Expected steps_per_epoch, or a tf.data.Dataset of known length, {_WHERE}. "
            f"Received: steps_per_epoch={arguments['steps_per_epoch']}, "
            f"x={type(data).__name__}. An epoch would never end."
        )
    if arguments["class_weight"]:
        raise errors.UserError(
            f"Expected no class_weight {_WHERE}, where tf_keras ignores it. Received: "
            f"class_weight={arguments['class_weight']}. Use sample weights instead."
        )
    steps = arguments["validation_steps"]
    if not steps and _is_endless(validation):
        raise errors.UserError(
            "Expected validation_steps, or validation_data that end. Received: "
            f"validation_steps={steps}."
        )
    return length


def _is_endless(data: Any) -> bool:
    is_dataset = isinstance(data, tf.data.Dataset)
    return is_dataset and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY


@contextlib.contextmanager
def served(data: Any, *, host: str, step: int) -> Iterator[Any]:
    """Yields data without end that workers read from this process at `host`; a callable as it is.

    They begin at a step counted over all epochs. A saved position would not be exact: workers had
    taken batches that they never trained on.
    """
    if not isinstance(data, tf.data.Dataset):
        yield data
        return
    batches = length_of(data, None)
    endless = data.repeat().skip(step % batches if batches else step)
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    _, address = dispatcher.target.split("://")
    reader = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    )
    target = f"grpc://{host}:{address.rpartition(':')[2]}"
    is_open = True
    gate = endless.take_while(lambda *batch: tf.numpy_function(lambda: is_open, [], tf.bool))
    dataset_id = service.register_dataset(target, gate, compression=None)
    undivided = service.ShardingPolicy.OFF  # the one reader has all data
    read = functools.partial(
        service.from_dataset_id, undivided, target, dataset_id, gate.element_spec, "training"
    )
    try:
        yield read()
    finally:
        is_open = False
        # Ends the job: otherwise `stop` waits for its threads with the GIL held, which they may
        # need. A second iterator over the dataset of `fit` would begin a second job.
        with contextlib.suppress(tf.errors.OpError):  # an error in the data, raised by `fit`
            collections.deque(read(), maxlen=0)
        reader.stop()
        dispatcher.stop()
