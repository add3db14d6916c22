"""oneDNN: kernels that TensorFlow has, and on many processors leaves off.

On x86-64 it takes them by default only where the processor has AVX-512 VNNI, AVX-VNNI, AMX or newer
(`IsMKLEnabled` in TensorFlow's `core/util/util.cc`). With AVX2, too, they mostly make dense and
convolutional layers faster. A process decides when it imports TensorFlow.
"""

import os
from collections.abc import Mapping

from tfx_perf.hardware import host
from tfx_perf.tf_internals import devices

_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
ON: Mapping[str, str] = {_VARIABLE: "1"}
"""The environment of a process that is to use it."""


def users_choice() -> str:
    """Returns what the user has set for it; empty: nothing."""
    return os.environ.get(_VARIABLE, "")


def is_open() -> bool:
    """Returns whether it is off, may be faster, and is undecided; touches no device."""
    return (
        not users_choice()
        and not devices.uses_onednn()
        and "avx2" in host.cpu_features()
        and not host.may_have_accelerators()
    )
