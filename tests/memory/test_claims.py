"""The claim of the largest batch, and the line through the peaks of steps."""

import pytest

from tfx_perf.memory import largest_batch
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
    found = largest_batch.claim(footprints, limit_bytes=limit * MIB, **arguments)
    return found.largest, found.is_lower_bound


def following(footprints, limit, **arguments):
    return largest_batch.next_size(footprints, limit_bytes=limit * MIB, **arguments)


def test_a_line_between_batches_that_were_trained_on_says_which_fits():
    footprints = took(b10=200, b50=600)  # 100 MiB and 10 an example
    assert claimed(footprints, 400) == (30, False)
    assert claimed(footprints, 600) == (50, False)
    assert claimed(footprints, 50) == (None, False)


def test_nothing_larger_is_claimed_than_was_trained_on():
    footprints = took(b10=200, b50=600)
    assert claimed(footprints, 700) == (50, False)  # 60 at the most
    assert claimed(footprints, 1100) == (50, True)
    remark = largest_batch.claim(footprints, limit_bytes=1100 * MIB).remark
    assert remark.endswith("; a straight line says that 2 times as many fit")
    assert claimed(footprints, 100_000) == (50, True)
    assert claimed(took(b10=200), 1000) == (10, True)
    assert claimed(took(b10=200, b20=210), 1000) == (20, True)  # no more than noise


def test_above_the_rows_at_which_the_model_raises_nothing_is_claimed():
    raised = [
        Footprint(batch_size=size, status="failed", reason="the step raised ValueError: 300 rows")
        for size in (1024, 512)
    ]
    footprints = [*took(b64=60, b256=61), *raised]
    assert claimed(footprints, 10_000) == (256, True)
    assert largest_batch.claim(footprints, limit_bytes=10_000 * MIB).remark == (
        "a batch of 256 was trained on and took 61.0 MiB; above 256 rows, at 512 at the latest, "
        "the model raises ValueError: 300 rows"
    )


def test_no_more_examples_than_there_are_are_trained_on():
    assert claimed(took(b200=200), 100_000, most=1000) == (200, True)
    remark = largest_batch.claim(took(b1000=200), limit_bytes=100_000 * MIB, most=1000).remark
    assert remark.endswith("; there are no more examples")
    assert following(took(b200=200), 100_000, most=1000) == 1000
    assert following(took(b200=200), 100_000, most=200) is None
    assert following(took(b200000=200), 100_000) == 2**20
    assert following(took(b2097152=200), 100_000) is None
    assert claimed(took(b2097152=200), 100_000) == (2**21, True)


def test_the_steepest_line_counts():
    # 10 an example at first, 20 at last: the last is what goes on.
    assert claimed(took(b10=200, b50=600, b100=1600), 1000) == (70, False)


def test_without_a_line_a_batch_over_the_limit_is_no_claim():
    assert claimed(took(b10=200), 100) == (None, False)
    assert claimed([], 100) == (None, False)


def test_a_batch_that_was_killed_refutes_the_line():
    footprints = [*took(b10=200, b50=600), ended(90, "killed")]
    assert claimed(footprints, 1100) == (50, True)
    assert "killed" in largest_batch.claim(footprints, limit_bytes=1100 * MIB).remark
    killed = [stepped(40, "killed")]
    assert claimed(took(b10=200, b50=600), 1100, steps=killed) == (10, True)


def test_one_that_takes_more_than_a_larger_one_refutes_the_line():
    footprints = took(b5=100, b33=800)
    assert claimed(footprints, 700) == (29, False)
    assert following(footprints, 700) == 26  # although 33 is near
    assert claimed([*footprints, ended(26, "out of memory")], 700) == (5, True)
    assert following([*footprints, ended(26, "out of memory")], 700) is None
    assert claimed([*footprints, *took(b26=750)], 700) == (5, True)
    assert following([*footprints, *took(b26=750)], 700) is None


def test_nothing_that_trained():
    found = largest_batch.claim([ended(10, "killed")], limit_bytes=MIB)
    assert found.largest is None
    assert "batch 10: its process killed" in found.remark


def test_the_next_size_tried_is_near_the_claim_and_below_the_limit():
    assert following(took(b10=200), 100_000) == 160
    assert following(took(b10=200), 1000) == 45
    assert following(took(b10=200), 100_000, steps=[stepped(40)]) == 640
    assert following(took(b10=200), 100_000, steps=[stepped(40, "failed")]) == 20
    assert following(took(b10=200), 100_000, steps=[stepped(20), stepped(80, "failed")]) == 20
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


def test_the_rows_at_which_a_model_raises_are_looked_for_between_two_batches():
    sizes, footprints = [], took(b64=60)
    while (size := following(footprints, 100_000)) is not None:
        sizes.append(size)
        raises = size > 300
        footprints += [ended(size, "failed")] if raises else took(**{f"b{size}": 61})
    assert sizes == [1024, 256, 512, 362]  # between 256 and 362 it is near enough


def quick(**figures):
    """Returns the batch after one of 32 that took 1 MiB of 1 GiB, but for `figures`."""
    given = {"batch_size": 32, "taken_bytes": 2**20, "limit_bytes": 2**30, **figures}
    return largest_batch.next_quick_size([Footprint(**given)])


@pytest.mark.parametrize(
    ("figures", "size"),
    [
        ({}, 16 * 32),
        ({"taken_bytes": 2**26}, None),  # 1 GiB, perhaps
        ({"status": "failed", "taken_bytes": None}, None),
        ({"seconds": 3.0, "step_seconds": 0.046}, 16 * 32),
        ({"seconds": 3.0, "step_seconds": 0.05}, None),  # four steps of 0.8 s
    ],
)
def test_a_larger_batch_needs_no_process_of_its_own_if_quick_and_far_from_the_limit(figures, size):
    assert quick(**figures) == size


def test_a_larger_batch_is_quick_beside_all_that_was_trained_on_before():
    sizes = [
        Footprint(
            batch_size=size, taken_bytes=2**20, limit_bytes=2**34, seconds=1.0, step_seconds=0.1
        )
        for size in (32, 64)
    ]
    assert largest_batch.is_quick(sizes, 319)
    assert not largest_batch.is_quick(sizes, 321)
    assert largest_batch.next_quick_size(sizes[1:]) is None


def test_a_size_that_was_tried_is_not_tried_again():
    given = {"taken_bytes": 2**20, "limit_bytes": 2**34}
    trained = [Footprint(batch_size=size, **given) for size in (8, 16)]
    steps = [stepped(24), stepped(40, "failed")]
    assert largest_batch.next_size(trained, limit_bytes=2**34, steps=steps) == 24
    assert largest_batch.next_quick_size(trained, steps=steps[1:]) == 25
    assert largest_batch.next_quick_size(trained, steps=steps) is None
    failed = [ended(size, "failed") for size in (25, 40)]
    assert largest_batch.next_quick_size([*trained, *failed]) is None


def peaks(**sizes):
    """Returns steps: `b8=(100, 20)` for a peak of 100 bytes at a batch of 8, which varies by 20."""
    return [
        StepMemory(plan="plain", batch_size=int(name[1:]), peak_bytes=peak, scatter_bytes=scatter)
        for name, (peak, scatter) in sizes.items()
    ]


def test_the_line_through_peaks():
    line, reason = largest_batch.peak_line(peaks(b10=(1100, 0), b20=(1200, 40)))
    assert not reason
    assert line.bytes_per_example == pytest.approx(10)
    assert line.fixed_bytes == pytest.approx(1000)
    assert line.deviation_ratio == pytest.approx(0, abs=1e-9)


def test_the_deviation_is_that_of_the_worst_peak():
    line, _ = largest_batch.peak_line(peaks(b1=(100, 0), b2=(260, 0), b3=(300, 0)))
    assert line.deviation_ratio == pytest.approx(20 / 100)


@pytest.mark.parametrize(
    ("small", "large", "stands_out"),
    [
        ((1000, 0), (1200, 0), True),
        ((1000, 0), (1040, 0), False),  # within the allocator's rounding
        ((1000, 200), (1200, 0), False),  # within what the rounds differ by
        ((1000, 0), (900, 0), False),
    ],
)
def test_a_line_is_drawn_only_where_growth_stands_out(small, large, stands_out):
    line, reason = largest_batch.peak_line(peaks(b8=small, b16=large))
    assert (line is not None) is stands_out
    assert bool(reason) is not stands_out
