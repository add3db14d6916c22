"""Shares of the processor, on folders as Linux shows them of real machines, and binding to them."""

import os

import pytest

from tfx_perf import errors
from tfx_perf.hardware import core_shares

# By node, the cores, each with its CPUs. Names say how many of each there are.
_ONE_NODE = [[[0], [1], [2], [3]]]
_SMT = [[[0, 4], [1, 5], [2, 6], [3, 7]]]  # Linux numbers the first CPUs of all cores first
_TWO_SOCKETS = [[[0, 4], [2, 6]], [[1, 5], [3, 7]]]  # as Dell's firmware has it, in turns
_FOUR_NODES = [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]]
_MEMORY_ONLY = [[[0], [1]], []]  # a node of CXL memory has no CPUs
_CLOUD = [[[0, 1]]]  # two hardware threads of one core


def written(folder, nodes):
    """Writes what Linux tells of a machine, and returns the folder."""
    for number, cores in enumerate(nodes):
        (folder / f"node/node{number}").mkdir(parents=True)
        cpus = [cpu for core in cores for cpu in core]
        text = core_shares.in_words(frozenset(cpus))
        (folder / f"node/node{number}/cpulist").write_text(f"{text}\n")
        for core in cores:
            for cpu in core:
                (folder / f"cpu/cpu{cpu}/topology").mkdir(parents=True)
                siblings = folder / f"cpu/cpu{cpu}/topology/thread_siblings_list"
                siblings.write_text(f"{core_shares.in_words(frozenset(core))}\n")
    return folder


def found(folder, nodes, usable=None):
    """Returns the topology of a machine of which a process may use these CPUs, or all."""
    every = {cpu for cores in nodes for core in cores for cpu in core}
    return core_shares.topology(
        written(folder, nodes), usable=frozenset(every if usable is None else usable)
    )


@pytest.mark.parametrize(
    ("nodes", "usable", "count", "shares"),
    [
        (_ONE_NODE, None, 1, ["0-3"]),
        (_ONE_NODE, None, 2, ["0-1", "2-3"]),
        (_ONE_NODE, None, 3, ["0", "1", "2-3"]),
        (_SMT, None, 2, ["0-1,4-5", "2-3,6-7"]),
        (_SMT, None, 8, ["0", "4", "1", "5", "2", "6", "3", "7"]),
        (_SMT, [0, 1, 2, 3], 2, ["0-1", "2-3"]),
        (_TWO_SOCKETS, None, 2, ["0,2,4,6", "1,3,5,7"]),
        (_TWO_SOCKETS, None, 4, ["0,4", "2,6", "1,5", "3,7"]),
        (_TWO_SOCKETS, [0, 2, 4, 6], 2, ["0,4", "2,6"]),
        (_TWO_SOCKETS, [0, 2, 4, 6, 1], 2, ["0,2,4,6", "1"]),
        (_FOUR_NODES, None, 2, ["0-3", "4-7"]),
        (_FOUR_NODES, None, 3, ["0-1", "2-4", "5-7"]),
        (_FOUR_NODES, [0, 1, 2, 3, 4, 5, 7], 4, ["0-1", "2-3", "4-5", "7"]),
        (_MEMORY_ONLY, None, 2, ["0", "1"]),
        (_CLOUD, None, 2, ["0", "1"]),
    ],
)
def test_each_has_whole_nodes_or_whole_cores_of_its_own(nodes, usable, count, shares, tmp_path):
    divided = found(tmp_path, nodes, usable).shares(count)
    assert [core_shares.in_words(each) for each in divided] == shares


@pytest.mark.parametrize(
    ("nodes", "usable", "cpu_count", "worker_count"),
    [
        (_ONE_NODE, None, 4, 2),
        (_ONE_NODE, None, 2, 1),  # a container's quota
        (_ONE_NODE, [0, 1, 2], 3, 1),
        (_SMT, None, 8, 2),
        (_SMT, [0, 4, 1, 5, 2, 6], 6, 1),  # three cores
        (_TWO_SOCKETS, None, 8, 2),
        (_TWO_SOCKETS, [1, 3, 5, 7], 4, 1),  # a cpuset of one socket
        (_FOUR_NODES, None, 8, 4),
        (_MEMORY_ONLY, None, 2, 1),
        (_CLOUD, None, 2, 1),
    ],
)
def test_several_workers_are_worth_trying_on_several_nodes_or_on_four_cores(
    nodes, usable, cpu_count, worker_count, tmp_path
):
    assert found(tmp_path, nodes, usable).worker_count(cpu_count=cpu_count) == worker_count


def test_cpus_that_are_offline_are_in_no_share(tmp_path):
    folder = written(tmp_path, _ONE_NODE)
    (folder / "node/node0/cpulist").write_text("0-1,3\n")  # and `cpu2` has no topology any more
    (folder / "cpu/cpu2/topology/thread_siblings_list").unlink()
    topology = core_shares.topology(folder, usable=frozenset({0, 1, 3}))
    assert topology.shares(3) == [{0}, {1}, {3}]


def test_where_nothing_is_told_each_cpu_is_a_core(tmp_path):
    topology = core_shares.topology(tmp_path, usable=frozenset({1, 2}))
    assert (topology.nodes, topology.cores) == (({1, 2},), ({1}, {2}))


def test_fewer_cpus_than_workers_are_an_error(tmp_path):
    with pytest.raises(errors.UserError, match=r"3 workers and 2 CPUs\. Start fewer workers"):
        found(tmp_path, _CLOUD).shares(3)


def test_this_machine_is_all_in_the_shares():
    usable = os.sched_getaffinity(0)
    topology = core_shares.here()
    assert frozenset().union(*topology.cores) == usable
    assert frozenset().union(*topology.nodes) == usable
    assert topology.shares(1) == [usable]
