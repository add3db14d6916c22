"""What may be claimed of the largest batch."""

import pytest

from tfx_perf.memory import claim
from tfx_perf.memory.record import Footprint, StepMemory

pytestmark = pytest.mark.each_choice

MIB = 2**20


def took(**sizes):
    """Returns footprints: `b8=100` for 100 MiB at a batch of 8."""
    return [
        Footprint(batch_size=int(name[1:]), taken_bytes=mib * MIB) for name, mib in sizes.items()
    ]


def ended(batch_size, status):
    return Footprint(batch_size=batch_size, status=status, reason=f"its process {status}")


def stepped(batch_size, status="measured"):
    return StepMemory(plan="plain", batch_size=batch_size, status=status)


def claimed(footprints, limit, **arguments):
    found = claim.claim(footprints, limit_bytes=limit * MIB, **arguments)
    return found.largest, found.is_lower_bound


def following(footprints, limit, **arguments):
    return claim.next_size(footprints, limit_bytes=limit * MIB, **arguments)


def test_a_line_that_reaches_the_limit_is_a_prediction():
    footprints = took(b10=200, b50=600)  # 100 MiB and 10 an example
    assert claimed(footprints, 1100) == (100, False)
    assert claimed(footprints, 400) == (30, False)
    assert "predicts" in claim.claim(footprints, limit_bytes=1100 * MIB).remark


def test_no_claim_goes_further_than_eight_times_what_was_trained_on():
    assert claimed(took(b10=200, b50=600), 100_000) == (400, True)
    assert claimed(took(b10=200, b50=600, b400=4100), 100_000) == (3200, True)


def test_no_batch_beyond_what_anybody_trains_with_is_claimed_or_trained_on():
    assert claimed(took(b200=200), 100_000, most=1000) == (1000, True)
    remark = claim.claim(took(b200=200), limit_bytes=100_000 * MIB, most=1000).remark
    assert remark.endswith("; there are no more examples")
    assert following(took(b200=200), 100_000, most=1000) == 1000
    assert following(took(b200=200), 100_000, most=200) is None
    assert claimed(took(b200000=200), 100_000) == (2**20, True)
    assert following(took(b200000=200), 100_000) == 2**20
    assert following(took(b2097152=200), 100_000) is None
    given = claim.claim(took(b2097152=200), limit_bytes=100_000 * MIB)
    assert (given.largest, given.is_lower_bound) == (2**21, True)
    assert given.remark == "a batch of 2,097,152 was trained on and took 200 MiB"


def test_the_steepest_line_counts():
    # 10 an example at first, 20 at last: the last is what goes on.
    assert claimed(took(b10=200, b50=600, b100=1600), 2600) == (150, False)


def test_without_a_line_all_is_taken_as_growing():
    assert claimed(took(b10=200), 1000) == (50, True)
    assert claimed(took(b10=200, b20=210), 1000) == (95, True)  # no more than noise
    assert claimed(took(b10=200), 100) == (None, False)
    assert claimed([], 100) == (None, False)


def test_a_batch_that_was_killed_refutes_the_line():
    footprints = [*took(b10=200, b50=600), ended(90, "killed")]
    assert claimed(footprints, 1100) == (50, True)
    assert "killed" in claim.claim(footprints, limit_bytes=1100 * MIB).remark
    killed = [stepped(90, "killed")]
    assert claimed(took(b10=200, b50=600), 1100, steps=killed) == (50, True)
    # A time that was too short says nothing of memory.
    assert claimed([*took(b10=200, b50=600), ended(90, "timed out")], 1100) == (100, False)


def test_nothing_that_trained():
    found = claim.claim([ended(10, "killed")], limit_bytes=MIB)
    assert found.largest is None
    assert "batch 10: its process killed" in found.remark


def test_what_is_trained_on_next_is_near_the_claim_and_below_the_limit():
    assert following(took(b10=200), 100_000) == 160
    assert following(took(b10=200), 1000) == 45
    assert following(took(b10=200), 100_000, steps=[stepped(40)]) == 640
    assert following(took(b10=200), 100_000, steps=[stepped(40, "failed")]) == 25
    assert following(took(b10=200, b80=900), 100_000) == 640
    assert following(took(b10=200, b50=600), 1100) == 90
    assert following(took(b10=200, b160=900), 100_000) is None  # which is nowhere near


@pytest.mark.parametrize(
    "footprints",
    [
        took(b10=200, b50=600, b90=1000),  # near enough
        [*took(b10=200, b50=600), ended(90, "killed")],
        [*took(b10=200), ended(80, "timed out")],
        [ended(10, "killed")],
    ],
)
def test_nothing_more_is_trained_on(footprints):
    assert following(footprints, 1100) is None


def _slow(**times):
    return Footprint(batch_size=32, taken_bytes=2**20, limit_bytes=2**30, **times)


@pytest.mark.parametrize(
    ("first", "size"),
    [
        (Footprint(batch_size=32, taken_bytes=2**20, limit_bytes=2**30), 16 * 32),
        (Footprint(batch_size=32, taken_bytes=2**26, limit_bytes=2**30), None),  # 1 GiB, perhaps
        (Footprint(batch_size=32, status="failed", limit_bytes=2**30), None),
        (_slow(seconds=3.0, step_seconds=0.1), 16 * 32),
        (_slow(seconds=3.0, step_seconds=0.3), None),
    ],
)
def test_a_second_batch_is_trained_on_beside_others_only_far_from_the_limit(first, size):
    assert claim.second_size(first) == size


def test_no_batch_is_claimed_that_was_seen_to_fail():
    footprints = took(b64=60, b512=61)
    assert claimed(footprints, 10_000)[0] > 1024
    assert claimed(footprints, 10_000, steps=[stepped(1024, "failed")]) == (512, True)
    # One that is smaller than what was trained on fails for another reason.
    assert claimed(footprints, 10_000, steps=[stepped(32, "failed")])[0] > 1024
