"""PerfConfig: every setting of tfx-perf, from YAML or a dict, validated.

```yaml
tensorflow_optimization:
  compilation: {enabled: true}
  schedule: {expected_runs: 30}
  input: {tuning_seconds: 60}
  training: {tuning_seconds: 120}
  distribution: {job: null}
  memory: {batch_sizes: [64, 256]}
  monitoring: {metrics_port: 9090}
  gate: {rules: {mfu_ratio: {min: 0.1}, step_time_seconds: {tolerance: 0.05}}}
```
"""

import json
from typing import Annotated, Any, ClassVar

import pydantic

from tfx_perf.config import base
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.config.gate import GateSettings
from tfx_perf.config.training import TrainingSettings


class CompilationSettings(base.Section):
    """XLA.

    Attributes:
        enabled: whether tuning tries XLA; it is used only where it is faster.
        aot_signature: signature of the saved model to compile ahead of time for this kind of CPU,
            e.g. `serving_default`, into `assets.extra/aot_cpu` beside it; None: none.
    """

    enabled: bool = True
    aot_signature: str | None = None


class ScheduleSettings(base.Section):
    """How often the result of tuning will be used.

    Attributes:
        expected_runs: trainings that will use a plan, this one included: tuning may cost what they
            save together. None: this one and as many as came before it; in a pipeline, one more.
    """

    expected_runs: base.PositiveInt | None = None

    def run_count(self, *, runs_before: int = 0, is_pipeline: bool = False) -> int:
        """Returns how many trainings will use a plan that is found now.

        Args:
            runs_before: number of earlier trainings. A training that has run n times is expected to
                run n more times.
            is_pipeline: whether it belongs to a pipeline, which is made to run again.
        """
        return self.expected_runs or 1 + is_pipeline + runs_before


class InputSettings(base.Section):
    """InputTuner: the search for a faster input.

    Attributes:
        batch_size: batch size for measuring without training code; None: 256. With such code its
            own batch size is measured.
        tuning_seconds: limit for the whole search.
        memory_budget_bytes: memory that a candidate may hold; None: half of what is free.
        margin: how much faster than the default a candidate must be, beyond its interval.
        allow_weaker_shuffle: whether a candidate may shuffle less than the default.
        service_address: dispatcher of a tf.data service to try, e.g. `grpc://host:5050`.
    """

    batch_size: base.PositiveInt | None = None
    tuning_seconds: base.Positive = 60.0
    memory_budget_bytes: base.PositiveInt | None = None
    margin: base.NotNegative = 0.02
    allow_weaker_shuffle: bool = False
    service_address: base.GrpcAddress | None = None


class MemorySettings(base.Section):
    """MemoryProfiler.

    Attributes:
        batch_sizes: batch sizes to profile beside your own; empty: half and double of it, and
            larger ones until it is clear how memory grows.
        max_device_utilization: share of the memory that the largest batch may take.
        timeout_seconds: after this, what has been measured is published. Steps may take half of it,
            a batch near the limit a quarter.
    """

    batch_sizes: base.PositiveInts = ()
    max_device_utilization: base.Share = 0.85
    timeout_seconds: base.Positive = 600.0


class MonitoringSettings(base.Section):
    """Metrics that OptimizedTrainer serves to Prometheus.

    It changes nothing about the training: neither plan nor checkpoint depends on it.

    Attributes:
        metrics_port: TCP port of the metrics, usually 9090; None: nothing is served.
        metrics_host: address to listen at; by default every IPv4 interface. `127.0.0.1` for this
            machine only, `::` for IPv6.
    """

    metrics_port: Annotated[int, pydantic.Field(ge=1, le=65535)] | None = None
    metrics_host: base.NotEmpty = "0.0.0.0"


class PerfConfig(base.Settings):
    """All settings; every key is optional.

    Example:
        >>> PerfConfig.from_dict({"training": {"tuning_seconds": 30}}).training.seed
    """

    ROOT_KEY: ClassVar[str] = "tensorflow_optimization"

    compilation: CompilationSettings = CompilationSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    input: InputSettings = InputSettings()
    training: TrainingSettings = TrainingSettings()
    distribution: DistributionSettings = DistributionSettings()
    memory: MemorySettings = MemorySettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    gate: GateSettings = GateSettings()

    @classmethod
    def from_json(cls, text: str) -> "PerfConfig":
        """Reads what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_json(self, *sections: str) -> str:
        """Returns the settings as JSON, for a component's execution property.

        Args:
            *sections: only these, or single settings such as `training.precision`; none means
                all. A component that carries only the settings it reads is still taken from cache
                when settings of others change.
        """
        include: dict[str, Any] = {}
        for section in sections:
            name, _, key = section.partition(".")
            include[name] = {*include.get(name, ()), key} if key else True
        return self.model_dump_json(include=include or None)
