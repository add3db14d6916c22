"""Whether this machine has what the settings take, before a device is opened or data are read."""

import os

from tfx_perf.hardware import crowding, host
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training import collectives, made_strategy

# Any of them may name a TPU that is elsewhere (tensorflow/python/tpu/client/client.py).
_TPU_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG")


def check(settings: DistributionSettings) -> None:
    """Checks that the machine that trains, or starts the workers, may have what they take.

    What is only known when TensorFlow has looked at its devices is found then.

    Args:
        settings: what counts. A job has other machines.

    Raises:
        UserError: a setting takes what is not here.
    """
    crowding.check(settings.processes_here, given=f"distribution.workers={settings.workers}")
    if settings.job is not None or host.may_have_accelerators():
        return
    if settings.made_strategy == "tpu" and _takes_own_tpu():
        raise made_strategy.no_tpu("this machine has no accelerator")
    if settings.made_strategy in ("mirrored", "multi_worker"):
        collectives.check(settings.collective, has_gpus=False)


def _takes_own_tpu() -> bool:
    return {os.environ.get(name, "local") for name in _TPU_VARIABLES} == {"local"}
