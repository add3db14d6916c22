import pytest

from tfx_perf.core import formatting, metrics


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("step_time_seconds", 0.0000123, "12.3 µs"),
        ("step_time_seconds", 0.003214, "3.21 ms"),
        ("step_time_seconds", 1.5, "1.50 s"),
        ("fit_time_seconds", 125.4, "2 min 05 s"),
        ("fit_time_seconds", 3725.0, "1 h 02 min"),
        ("peak_memory_bytes", 512.0, "512 B"),
        ("peak_memory_bytes", 1.5 * 2**20, "1.50 MiB"),
        ("peak_memory_bytes", 23.5 * 2**30, "23.5 GiB"),
        ("examples_per_second", 34.56, "34.6/s"),
        ("examples_per_second", 163_000.4, "163,000/s"),
        ("examples_per_second", 1_456_000.0, "1.46 M/s"),
        ("achieved_flops_per_second", 2.5e12, "2.50 T/s"),
        ("mfu_ratio", 0.0413, "4.13%"),
        ("plan_speedup_ratio", 4.73, "4.73×"),
        ("parameter_count", 1_234_567.0, "1,234,567"),
        ("xla_enabled", 0.0, "no"),
        ("train_loss", 0.412345, "0.4123"),
        ("train_loss", None, "–"),
    ],
)
def test_format_value(key, value, text):
    assert formatting.format_value(key, value) == text


@pytest.mark.parametrize("key", sorted(metrics.CATALOGUE))
def test_every_unit_of_the_catalogue_has_a_format(key):
    assert formatting.format_value(key, 0.0)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("step_time_seconds", "step time"),
        ("mfu_ratio", "mfu"),
        ("examples_per_second", "examples per second"),
    ],
)
def test_label_leaves_the_unit_to_the_value(key, text):
    assert formatting.label(key) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0313, "+3.1"), (-0.0313, "-3.1"), (-0.0004, "+0.0"), (0.0, "+0.0")]
)
def test_a_change_that_rounds_to_nothing_is_no_fall(share, text):
    assert formatting.signed_percent(share) == text


@pytest.mark.parametrize(
    ("ratio", "text", "bound"),
    [
        (0.01387, "72.1 times slower than", "at least 72.1 times slower than"),
        (0.4, "2.50 times slower than", "at least 2.50 times slower than"),
        (0.71, "0.71 times as fast as", "at most 0.71 times as fast as"),
        (3.0, "3.00 times as fast as", "at most 3.00 times as fast as"),
    ],
)
def test_a_large_slowdown_is_called_one(ratio, text, bound):
    assert formatting.compared_speed(ratio) == text
    assert formatting.compared_speed(ratio, is_upper_bound=True) == bound


def test_unknown_metric():
    with pytest.raises(KeyError):
        formatting.format_value("speed", 1.0)


@pytest.mark.parametrize(
    ("cost_seconds", "saved_seconds", "run_count", "is_planned", "said"),
    [
        (0.0, 1.0, 1, True, ""),
        (6.0, None, 1, True, "The trials took 6.00 s."),
        (6.0, -1.0, 1, True, "The trials took 6.00 s."),
        (6.0, 9.0, 1, True, "The trials took 6.00 s; this should save 9.00 s a run."),
        *((6.0, 2.5, count, True, "The trials took 6.00 s; this should save 2.50 s a run, and is "
                                  "paid for after 3 runs.") for count in (None, 3, 30)),
        *((6.0, 2.5, *case, "The trials took 6.00 s; this should save 2.50 s a run, and pays only "
                            f"after 3 runs, not within {within}.")
          for case, within in {
              (2, True): "the 2 planned runs", (1, True): "the 1 planned run",
              (2, False): "the 2 expected runs", (1, False): "this run",
          }.items()),
    ],
)  # fmt: skip
def test_a_sentence_has_what_was_paid_and_what_for(
    cost_seconds, saved_seconds, run_count, is_planned, said
):
    found = formatting.cost_sentence(
        "The trials",
        cost_seconds=cost_seconds,
        saved_seconds=saved_seconds,
        run_count=run_count,
        is_planned=is_planned,
    )
    assert found == said
