"""PerfConfig: every setting of tfx-perf, from YAML or a dict, validated.

```yaml
tensorflow_optimization:
  compilation: {enabled: true}
  schedule: {planned_runs: 30}
  input: {time_budget_seconds: 60}
  training: {trial_budget_seconds: 120}
  distribution: {job: null}
  memory: {batch_sizes: [64, 256]}
  monitoring: {metrics_port: 9090}
  gate: {rules: {mfu_ratio: {min: 0.1}, step_time_seconds: {margin: 0.05}}}
```
"""

import json
from typing import Any, ClassVar

from tfx_perf.settings.compilation import CompilationSettings
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.input import InputSettings
from tfx_perf.settings.memory import MemorySettings
from tfx_perf.settings.monitoring import MonitoringSettings
from tfx_perf.settings.schedule import ScheduleSettings
from tfx_perf.settings.section import Settings
from tfx_perf.settings.training import TrainingSettings


class PerfConfig(Settings):
    """All settings; every key is optional.

    Example:
        >>> PerfConfig.from_dict({"training": {"trial_budget_seconds": 30}}).training.seed
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
                all. A component that carries only what it reads is taken from cache when
                settings of the others change.
        """
        include: dict[str, Any] = {}
        for section in sections:
            name, _, key = section.partition(".")
            include[name] = {key} if key else True
        return self.model_dump_json(include=include or None)
