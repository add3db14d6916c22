"""PerfConfig: every setting of tfx-perf, from YAML or a dict, validated.

```yaml
tensorflow_optimization:
  compilation: {enabled: true}
  input: {time_budget_seconds: 60}
  training: {trial_budget_seconds: 120}
  distribution: {job: null}
  memory: {batch_sizes: [64, 256]}
  monitoring: {metrics_port: 9090}
  gate: {rules: {mfu_ratio: {min: 0.1}, step_time_seconds: {margin: 0.05}}}
```
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from tfx_perf import errors, storage, validation
from tfx_perf.settings.cluster_job import ClusterJob
from tfx_perf.settings.gate import GateConfig
from tfx_perf.settings.section import Section as _Section

_ROOT_KEY = "tensorflow_optimization"

_Positive = Annotated[float, pydantic.Field(gt=0)]
_PositiveInt = Annotated[int, pydantic.Field(gt=0)]
_Share = Annotated[float, pydantic.Field(gt=0, le=1)]


def _listed(value: Any) -> Any:
    return (value,) if type(value) is int else value  # which true is not


# A single number stands for a list of one.
_PositiveInts = Annotated[tuple[_PositiveInt, ...], pydantic.BeforeValidator(_listed)]


class CompilationConfig(_Section):
    """XLA.

    Attributes:
        enabled: try XLA; it is used only where the trials find it faster.
        aot_signature: the signature of the saved model to compile ahead of time for this kind
            of CPU, e.g. `serving_default`, into `assets.extra/aot_cpu` beside it; None: none.
    """

    enabled: bool = True
    aot_signature: str | None = None


class InputConfig(_Section):
    """InputTuner.

    Attributes:
        batch_size: examples in a batch while measuring; None: the training code's if it is
            given, else 256.
        time_budget_seconds: wall time of the whole search.
        memory_budget_bytes: what a candidate may hold in RAM; None: half of what is free.
        margin: how much faster than the default a candidate must be, beyond its interval.
        allow_weaker_shuffle: also choose what shuffles worse than the default.
        materialize: write an uncompressed copy of the split beside the plan if it pays back
            within the planned epochs.
        service_address: dispatcher of a tf.data service to try, e.g. `grpc://host:5050`.
    """

    batch_size: _PositiveInt | None = None
    time_budget_seconds: _Positive = 60.0
    memory_budget_bytes: _PositiveInt | None = None
    margin: Annotated[float, pydantic.Field(ge=0)] = 0.02
    allow_weaker_shuffle: bool = False
    materialize: bool = False
    service_address: str | None = None

    @pydantic.field_validator("service_address")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            validation.grpc_address(value)
        return value


class TrainingConfig(_Section):
    """OptimizedTrainer.

    Attributes:
        trial_budget_seconds: wall time of the trials that choose the plan, beside the start
            of their processes; 0 trains with plain `fit` and only measures.
        steps_per_call: the numbers of steps per call from Python that are tried.
        loss_tolerance: relative difference of the loss to plain `fit`'s that a plan may show
            where only the loss can be compared: in another precision, with oneDNN's kernels, and
            in models whose random numbers nobody can repeat.
        margin: how much faster than plain `fit` a plan must be, beyond its interval.
        seed: seeds Python, NumPy and TensorFlow before the user's code; None leaves them.
        precision: Keras' global dtype policy while the user's code runs; None leaves it, `auto`
            has the trials find out whether a narrower one is faster and trains the same.
        recompute: the number of segments of the forward pass whose activations are computed
            again in the backward pass, which takes time and saves memory; `auto`: as many as
            are estimated to need the least memory; None keeps all activations.
        checkpoint_folder: local folder where an interrupted training is found again; None:
            OptimizedTrainer's own working folder, and none outside of it.
        checkpoint_steps: steps between two checkpoints; 0 or null: not by steps.
        checkpoint_seconds: seconds between two checkpoints, if this comes first; 0 or null:
            not by time. Neither makes saving take more than some 2 % of the time.
        loss_upper_bound: a loss above this ends in a rollback, as NaN and Inf do.
        recovery_max_trials: how often training goes back and on with a safer plan.
    """

    trial_budget_seconds: Annotated[float, pydantic.Field(ge=0)] = 120.0
    steps_per_call: _PositiveInts = (10, 50)
    loss_tolerance: _Positive = 0.01
    margin: Annotated[float, pydantic.Field(ge=0)] = 0.02
    seed: int | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] | None = None
    recompute: int | Literal["auto"] | None = None
    checkpoint_folder: str | None = None
    checkpoint_steps: Annotated[int, pydantic.Field(ge=0)] | None = 1000
    checkpoint_seconds: Annotated[float, pydantic.Field(ge=0)] | None = 300.0
    loss_upper_bound: float | None = None
    recovery_max_trials: Annotated[int, pydantic.Field(ge=0)] = 2

    @pydantic.field_validator("checkpoint_folder")
    @classmethod
    def _is_local(cls, folder: str | None) -> str | None:
        if folder is not None and storage.is_remote(folder):
            raise ValueError("checkpoints are written into local folders, or mounted ones")
        return folder

    @pydantic.field_validator("recompute", mode="before")
    @classmethod
    def _segments(cls, value: Any) -> Any:
        if value in (None, "auto") or (type(value) is int and value > 1):
            return value
        raise ValueError("recompute is auto or a number of segments, at least 2")


class DistributionConfig(_Section):
    """Several workers for OptimizedTrainer.

    Attributes:
        job: the job on Kubernetes that trains in OptimizedTrainer's place; None: it trains itself.
    """

    job: ClusterJob | None = None


class MemoryConfig(_Section):
    """MemoryProfiler.

    Attributes:
        batch_sizes: profiled beside the module's own batch size; empty: half and double it,
            and more until the growth of the peak stands out.
        max_device_utilization: share of the memory that the largest batch may take.
        timeout_seconds: after this what has been measured is published. The steps may take half
            of it; a batch near the limit is trained on only if a quarter of it will do.
    """

    batch_sizes: _PositiveInts = ()
    max_device_utilization: _Share = 0.85
    timeout_seconds: _Positive = 600.0


class MonitoringConfig(_Section):
    """What OptimizedTrainer serves to Prometheus while it trains.

    It changes nothing about the training: neither plan nor checkpoint depends on it.

    Attributes:
        metrics_port: TCP port of the HTTP server, customarily 9090; None: nothing is served.
        metrics_host: address to listen at. A scrape comes from another machine or pod, so by
            default every IPv4 interface; `::` for IPv6, `127.0.0.1` for this machine only.
    """

    # Strict, because YAML's `true` would else be port 1.
    metrics_port: Annotated[int, pydantic.Field(ge=1, le=65535, strict=True)] | None = None
    metrics_host: Annotated[str, pydantic.Field(min_length=1)] = "0.0.0.0"


class PerfConfig(_Section):
    """All settings; every key is optional.

    Example:
        >>> PerfConfig.from_dict({"training": {"trial_budget_seconds": 30}}).training.seed
    """

    compilation: CompilationConfig = CompilationConfig()
    input: InputConfig = InputConfig()
    training: TrainingConfig = TrainingConfig()
    distribution: DistributionConfig = DistributionConfig()
    memory: MemoryConfig = MemoryConfig()
    monitoring: MonitoringConfig = MonitoringConfig()
    gate: GateConfig = GateConfig()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None, *, source: str = "config") -> "PerfConfig":
        """Builds the configuration from nested mappings.

        Args:
            values: the settings, with or without the outer `tensorflow_optimization` key;
                None for the defaults.
            source: what to call the settings in an error, e.g. the file's path.

        Raises:
            UserError: an unknown key or a value of the wrong type or range.
        """
        values = {} if values is None else values
        if isinstance(values, Mapping):
            values = values.get(_ROOT_KEY, values)
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise errors.UserError(
                validation.explain(error, model=cls, source=source)
            ) from error

    @classmethod
    def of(cls, config: "PerfConfig | Mapping[str, Any] | None") -> "PerfConfig":
        """Returns the configuration itself, or what `from_dict` makes of it."""
        return config if isinstance(config, PerfConfig) else cls.from_dict(config)

    @classmethod
    def from_yaml(cls, path: str | pathlib.Path) -> "PerfConfig":
        """Reads the configuration from a YAML file.

        Raises:
            UserError: the file cannot be read, is not YAML, or holds a wrong setting.
        """
        return cls.from_dict(validation.read_yaml(path), source=str(path))

    @classmethod
    def from_json(cls, text: str) -> "PerfConfig":
        """Reads what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_json(self, *sections: str) -> str:
        """Returns the settings as JSON, for a component's execution property.

        Args:
            *sections: only these, or single settings such as `training.precision`; none means
                all. A component that carries only what it reads is taken from cache when
                settings of the others change.
        """
        include: dict[str, Any] = {}
        for section in sections:
            name, _, key = section.partition(".")
            include[name] = {key} if key else True
        return self.model_dump_json(include=include or None)


def check_one_module(*, module_file: Any, run_fn: Any) -> None:
    """Checks that a component knows where its training code is.

    Args:
        module_file: a path, or what a run puts one in the place of.
        run_fn: an import path, or likewise.

    Raises:
        UserError: both or neither are given, or no other process can import the function.
    """
    if bool(module_file) == bool(run_fn):
        raise errors.UserError(
            "Expected exactly one of module_file and run_fn. "
            f"Received: module_file={module_file!r}, run_fn={run_fn!r}."
        )
    if str(run_fn).startswith("__main__."):
        raise errors.UserError(
            "Expected a function that other processes can import. "
            f"Received: run_fn={run_fn}. Move it into a module of its own, or give module_file."
        )
