"""Energy use of the whole host, by all of its processes, from RAPL and NVML.

RAPL: the processors' counters in /sys/class/powercap
(https://docs.kernel.org/power/powercap/powercap.html). NVML: NVIDIA's library, through the package
`nvidia-ml-py` if that is installed.
"""

import contextlib
import dataclasses
import importlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from tfx_perf.core import cache_key, errors, periodic
from tfx_perf.hardware import host

_POWERCAP = pathlib.Path("/sys/class/powercap")
# RAPL's counters wrap around after some ten minutes at full load.
_SAMPLING_SECONDS = 60.0
_MILLI = 1e3
_DIGITS = 15  # hexadecimal digits of a meter's name, which fit into 64 bits


class RaplCounter:
    """Adds up the processors of the host, and the memory if it has its own counter.

    Counters with the same `meter` count the same energy. Each must be read every minute.
    """

    def __init__(self, root: pathlib.Path = _POWERCAP) -> None:
        """Begins to count in a folder of zones; MeasurementError if there is none to read."""
        self._zones = [folder for folder in sorted(root.glob("intel-rapl:*")) if _counts(folder)]
        if not self._zones:
            raise errors.MeasurementError(f"no RAPL in {root}")
        try:
            self._last = {zone: _number(zone / "energy_uj") for zone in self._zones}
            self._range = {zone: _number(zone / "max_energy_range_uj") for zone in self._zones}
        except (OSError, ValueError) as error:  # root only, since Linux 5.10
            raise errors.MeasurementError(f"RAPL cannot be read ({error})") from error
        self.meter = f"RAPL of {host.boot_id()}"
        self._microjoules = 0

    def joules(self) -> float:
        """Returns the energy of processors and memory since the counter was made."""
        for zone in self._zones:
            now = _number(zone / "energy_uj")
            passed = now - self._last[zone]
            self._microjoules += passed if passed >= 0 else passed + self._range[zone]
            self._last[zone] = now
        return self._microjoules / 1e6


class NvmlCounter:
    """Adds up the NVIDIA GPUs of the host, from Volta on."""

    def __init__(self) -> None:
        """Begins to count; MeasurementError without package, driver or counter."""
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise errors.MeasurementError("nvidia-ml-py is not installed") from error
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
            uuids = sorted(str(self._nvml.nvmlDeviceGetUUID(each)) for each in self._devices)
            self.meter = ", ".join(uuids)  # a container need not see all GPUs of its host
            self._began = self._millijoules()
        except self._nvml.NVMLError as error:
            raise errors.MeasurementError(f"NVML cannot be read ({error})") from error

    def joules(self) -> float:
        """Returns the energy of all GPUs since the counter was made."""
        return (self._millijoules() - self._began) / 1e3

    def _millijoules(self) -> int:
        return sum(map(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._devices))


COUNTERS = RaplCounter, NvmlCounter
"""The kinds of counters that are tried on every host."""


@dataclasses.dataclass
class Energy:
    """Joules by meter; `reason` says why something was not counted, and is empty if all was."""

    by_meter: dict[str, float] = dataclasses.field(default_factory=dict)
    reason: str = ""

    @property
    def joules(self) -> float | None:
        """The sum of all meters; None if nothing could be counted."""
        return sum(self.by_meter.values()) if self.by_meter else None


def of_all_hosts(here: Energy, sync: Any) -> Energy:
    """Returns the energy of all hosts, each meter once; every worker calls it (with a `Sync`)."""
    if sync.size == 1:
        return here
    readings = [
        (int(cache_key.digest(meter.encode())[:_DIGITS], 16), int(_MILLI * each))
        for meter, each in here.by_meter.items()
    ]
    readings += [(0, 0)] * (len(COUNTERS) - len(readings))
    gathered = sync.all_gather([not here.reason, *(part for each in readings for part in each)])
    total = Energy()
    if not gathered[:, 0].all():
        total.reason = here.reason or "other workers have not counted everything"
    if not gathered[:, 1].all():  # the first meter's name
        return total
    for meter, millijoules in gathered[:, 1:].reshape(-1, 2).tolist():
        if meter:  # workers that share it do not begin and end at the same time
            joules = max(millijoules / _MILLI, total.by_meter.get(str(meter), 0.0))
            total.by_meter[str(meter)] = joules
    return total


@contextlib.contextmanager
def counted() -> Iterator[Energy]:
    """Counts the energy of the host in the context; complete when the context ends."""
    counters: list[RaplCounter | NvmlCounter] = []
    reasons = []
    for kind in COUNTERS:
        try:
            counters.append(kind())
        except errors.MeasurementError as error:
            reasons.append(str(error))
    energy = Energy(reason="; ".join(reasons))
    if not counters:
        yield energy
        return
    try:
        with periodic.calling(lambda: _read(counters), seconds=_SAMPLING_SECONDS):
            yield energy
    finally:
        try:
            energy.by_meter = {counter.meter: counter.joules() for counter in counters}
        except Exception as error:  # a driver may fail; the training must not
            energy.reason = f"a counter failed: {error}"


def _read(counters: list[RaplCounter | NvmlCounter]) -> None:
    for counter in counters:
        with contextlib.suppress(Exception):  # reported at the end
            counter.joules()


def _counts(zone: pathlib.Path) -> bool:
    """Whether to add up a zone: a processor, or memory, which no processor's zone includes."""
    with contextlib.suppress(OSError):
        name = (zone / "name").read_text().strip()
        if re.fullmatch(r"intel-rapl:\d+", zone.name):
            return name.startswith("package")
        return name == "dram"
    return False


def _number(path: pathlib.Path) -> int:
    return int(path.read_text())
