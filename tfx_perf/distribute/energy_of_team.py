"""What all workers of a training took: hosts are added up, and what two of them share once."""

from tfx_perf.core import cache_key
from tfx_perf.hardware.energy import COUNTERS, Energy
from tfx_perf.training.team import Team

_MILLI = 1e3
_DIGITS = 15  # hexadecimal ones of a meter's name, that fit into 64 bits


def of_team(own: Energy, team: Team) -> Energy:
    """Returns what all workers' hosts and GPUs took, if all have counted; every worker calls it."""
    if team.count == 1:
        return own
    readings = [(_number(meter), int(_MILLI * each)) for meter, each in own.by_meter.items()]
    readings += [(0, 0)] * (len(COUNTERS) - len(readings))
    said = team.gathered([not own.reason, *(part for each in readings for part in each)])
    found = Energy()
    if not said[:, 0].all():
        found.reason = own.reason or "other workers have not counted everything"
    if not said[:, 1].all():  # the first meter's name
        return found
    for meter, millijoules in said[:, 1:].reshape(-1, 2).tolist():
        if meter:  # two that share it do not begin and end at the same time
            joules = max(millijoules / _MILLI, found.by_meter.get(str(meter), 0.0))
            found.by_meter[str(meter)] = joules
    return found


def _number(meter: str) -> int:
    return int(cache_key.digest(meter.encode())[:_DIGITS], 16)
