"""oneDNN's kernels."""

from collections.abc import Mapping

from tfx_perf.training.optimizations.optimization import Optimization
from tfx_perf.training.optimizations.steps_per_call import CALL_SECONDS


class OneDnn(Optimization):
    """Runs in a process that uses oneDNN, where TensorFlow would not; see `hardware.onednn`.

    A process has it or not, so the starter of the trials' processes tries it.
    """

    name = "onednn"
    in_plain_fit = True
    hoped_share = 0.2

    def words(self, value: bool) -> str:
        """Returns its name."""
        return ", oneDNN"

    def hoped_saving_seconds(self, step_seconds: float) -> float:
        """Returns a share of the step without its Python part."""
        return super().hoped_saving_seconds(max(0.0, step_seconds - CALL_SECONDS))

    def environment(self) -> Mapping[str, str]:
        """Returns the variable that makes TensorFlow use it."""
        from tfx_perf.hardware import onednn

        return onednn.ON

    def users_choice(self) -> str:
        """Returns the user's setting; empty if there is none."""
        from tfx_perf.hardware import onednn

        return onednn.users_choice()
