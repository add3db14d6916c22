"""Environments of runs, completed by what goes without saying.

Records leave out counts of one. Those of earlier versions have fewer counts, and call no strategy
by TensorFlow's own name. What a run certainly had is told, so that it is compared with runs that
say so; what is not certain stays unsaid.
"""

from collections.abc import Mapping

_FORMER_NAMES = {"_DefaultDistributionStrategy": "one_device"}
_OF_ONE_REPLICA = {
    "", "one_device", "OneDeviceStrategy", "model_parallel", "ParameterServerStrategy"
}  # fmt: skip
_OF_WORKERS = "MultiWorkerMirroredStrategy"


def completed(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment with the counts of who trained, as far as they are certain.

    Args:
        environment: as a record has it; one without a strategy is returned as it is.
    """
    if "strategy" not in environment:
        return dict(environment)
    strategy = _FORMER_NAMES.get(environment["strategy"], environment["strategy"])
    found = {
        "parameter_server_count": "0",
        "worker_count": "1",
        "host_count": "1",  # of several workers in old records nobody knows better
        **environment,
        "strategy": strategy,
    }
    has_one_device = found.get("device_count") == "1"
    if strategy in _OF_ONE_REPLICA or (has_one_device and found["worker_count"] == "1"):
        found.setdefault("replica_count", "1")
    elif has_one_device and strategy == _OF_WORKERS:
        found.setdefault("replica_count", found["worker_count"])
    return found
