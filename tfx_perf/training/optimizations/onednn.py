"""oneDNN's kernels."""

from collections.abc import Mapping

from tfx_perf.training.optimizations.optimization import Optimization
from tfx_perf.training.optimizations.steps_per_call import CALL_SECONDS


class OneDnn(Optimization):
    """In a process that uses oneDNN, where TensorFlow would not; see `hardware.onednn`.

    A process has it or not, so that it is tried by whoever starts the processes of the trials.
    """

    name = "onednn"
    in_plain_fit = True
    hoped_share = 0.2

    def words(self, value: bool) -> str:
        """Returns what it is known by."""
        return ", oneDNN"

    def hoped_saving_seconds(self, step_seconds: float) -> float:
        """Returns a share of what is left of the step without Python."""
        return super().hoped_saving_seconds(max(0.0, step_seconds - CALL_SECONDS))

    def environment(self) -> Mapping[str, str]:
        """Returns what has TensorFlow use it."""
        from tfx_perf.hardware import onednn

        return onednn.ON

    def users_choice(self) -> str:
        """Returns what the user has set for it; empty: nothing."""
        from tfx_perf.hardware import onednn

        return onednn.users_choice()
