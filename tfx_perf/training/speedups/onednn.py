"""oneDNN: kernels that TensorFlow includes, but leaves off on many processors.

On x86-64 it uses them by default only if the processor has AVX-512 VNNI, AVX-VNNI, AMX or newer
(`IsMKLEnabled` in TensorFlow's `core/util/util.cc`). With AVX2, too, they usually make dense and
convolutional layers faster. The choice is fixed when a process imports TensorFlow.
"""

import os
from collections.abc import Mapping

from tfx_perf.hardware import host
from tfx_perf.training.speedups.speedup import Speedup
from tfx_perf.training.speedups.steps_per_execution import CALL_SECONDS

_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


class OneDnn(Speedup):
    """Runs in a process that uses oneDNN although TensorFlow would not by default.

    It holds for a whole process, so the code that starts the trials' processes tries it.
    """

    name = "onednn"
    in_plain_fit = True
    expected_share = 0.2

    def words(self, value: bool) -> str:
        """Returns its name."""
        return ", oneDNN"

    def expected_saving_seconds(self, step_seconds: float) -> float:
        """Returns a share of the step's time outside Python."""
        return super().expected_saving_seconds(max(0.0, step_seconds - CALL_SECONDS))

    def environment(self) -> Mapping[str, str]:
        """Returns the variable that makes TensorFlow use it."""
        return {_VARIABLE: "1"}

    def users_choice(self) -> str:
        """Returns the user's setting; empty if there is none."""
        return os.environ.get(_VARIABLE, "")


def is_open() -> bool:
    """Whether it is off, may be faster, and is not set by the user; touches no device."""
    from tfx_perf.tf_internals import devices

    return (
        not os.environ.get(_VARIABLE)
        and not devices.uses_onednn()
        and "avx2" in host.cpu_features()
        and not host.may_have_accelerators()
    )
