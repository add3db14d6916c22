"""What several hosts took, which cannot be had here.

That of one host's workers is measured in `test_communication`.
"""

import numpy as np
import pytest

from tfx_perf.hardware import energy
from tfx_perf.hardware.energy import Energy
from tfx_perf.training.replicas.sync import Sync


class Told(Sync):
    """Each worker has counted something."""

    def __init__(self, *energies):
        super().__init__()
        self.size, self.said = len(energies), []
        for each in energies:
            self.own = []
            energy.of_all_hosts(each, self)
            self.said.append(self.own)

    def all_gather(self, own):
        self.own = [int(part) for part in own]
        return np.array(self.said if len(self.said) == self.size else [self.own], np.int64)


def of_all(*energies):
    return energy.of_all_hosts(energies[0], Told(*energies))


def test_hosts_are_added_up_and_what_workers_share_is_counted_once():
    found = of_all(
        Energy(by_meter={"RAPL of a": 10.0, "GPU-0": 1.5}),
        Energy(by_meter={"RAPL of a": 10.25, "GPU-1": 2.0}),
        Energy(by_meter={"RAPL of b": 20.0}),
    )
    assert found.joules == pytest.approx(10.25 + 1.5 + 2.0 + 20.0)
    assert found.reason == ""


def test_nothing_is_known_of_all_where_one_has_counted_nothing():
    found = of_all(Energy(by_meter={"RAPL of a": 10.0}), Energy(reason="no RAPL"))
    assert (found.joules, found.reason) == (None, "other workers have not counted everything")
    found = of_all(Energy(by_meter={"RAPL of a": 10.0}, reason="no GPU"), Energy(reason="no RAPL"))
    assert (found.joules, found.reason) == (None, "no GPU")


def test_one_process_is_told_what_it_has_counted():
    own = Energy(by_meter={"RAPL of a": 10.0})
    assert energy.of_all_hosts(own, Sync()) is own
