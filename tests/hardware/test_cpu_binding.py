"""Shares of the processor, on folders as Linux shows them of real machines."""

import os

import pytest

from tfx_perf.core import errors
from tfx_perf.distribute import supervise

# By socket, the cores, each with its CPUs. Names say how many of each there are.
_ONE_SOCKET = [[[0], [1], [2], [3]]]
_SMT = [[[0, 4], [1, 5], [2, 6], [3, 7]]]  # Linux numbers the first CPUs of all cores first
_TWO_SOCKETS = [[[0, 4], [2, 6]], [[1, 5], [3, 7]]]  # as Dell's firmware has it, in turns
_CLOUD = [[[0, 1]]]  # two hardware threads of one core


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Returns what makes a machine, of which this process may use some CPUs, or all."""

    def make(sockets, usable=None):
        for number, cores in enumerate(sockets):
            for core in cores:
                for cpu in core:
                    folder = tmp_path / f"cpu{cpu}/topology"
                    folder.mkdir(parents=True)
                    siblings = supervise.format_cpus(frozenset(core))
                    (folder / "thread_siblings_list").write_text(f"{siblings}\n")
                    (folder / "physical_package_id").write_text(f"{number}\n")
        every = {cpu for cores in sockets for core in cores for cpu in core}
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(usable or every))

    monkeypatch.setattr(supervise, "_CPUS", tmp_path)
    return make


@pytest.mark.parametrize(
    ("sockets", "usable", "count", "shares"),
    [
        (_ONE_SOCKET, None, 1, ["0-3"]),
        (_ONE_SOCKET, None, 2, ["0-1", "2-3"]),
        (_ONE_SOCKET, None, 3, ["0", "1", "2-3"]),
        (_SMT, None, 2, ["0-1,4-5", "2-3,6-7"]),
        (_SMT, None, 8, ["0", "4", "1", "5", "2", "6", "3", "7"]),
        (_SMT, [0, 1, 2, 3], 2, ["0-1", "2-3"]),
        (_TWO_SOCKETS, None, 2, ["0,2,4,6", "1,3,5,7"]),
        (_TWO_SOCKETS, None, 4, ["0,4", "2,6", "1,5", "3,7"]),
        (_TWO_SOCKETS, [0, 2, 4, 6], 2, ["0,4", "2,6"]),
        (_CLOUD, None, 2, ["0", "1"]),
        ([], [1, 2], 2, ["1", "2"]),  # nothing is told
    ],
)
def test_each_has_whole_cores_of_its_own(sockets, usable, count, shares, machine):
    machine(sockets, usable)
    assert [supervise.format_cpus(each) for each in supervise._cpu_shares(count)] == shares


def test_fewer_cpus_than_workers_are_an_error(machine):
    machine(_CLOUD)
    with pytest.raises(errors.UserError, match=r"3 workers and 2 CPUs\. Start fewer workers"):
        supervise._cpu_shares(3)


def test_this_machine_is_all_in_the_shares():
    assert supervise._cpu_shares(1) == [os.sched_getaffinity(0)]
