"""How a page is compared with what comes."""

import pages
import pytest


@pytest.mark.parametrize(
    ("page", "came"),
    [
        ("Transform  12.5 s  done\n", "  Transform                 1 min 02 s  done"),
        ("a\n...\nd\n", "a\nb\nc\nd"),
        ("...\nd\n", "d"),
        ("2026-11-24T19:21:01 counts\n", "2027-01-02T03:04:05.678901 counts"),
        ("in /home/you/taxi\n", "in /tmp/x/taxi"),
        ("InputTuner: columns is 3 times\n", "InputTuner: the default stays"),
        ("step ▇█▁ 1.5 ms\n", "step ▁▁█ 150 µs"),
    ],
)
def test_what_differs_from_run_to_run_is_the_same(page, came):
    assert pages.difference(page, came) is None


@pytest.mark.parametrize(
    ("page", "came"),
    [
        ("Transform  12.5 s  done\n", "Transform  12.5 s  failed"),
        ("a\nb\n", "a"),
        ("a\n", "a\nb"),
        ("a\n...\nd\n", "a\nb"),
        ("Blessed: 4 of 16 checks made\n", "Refused by 4 of 16 checks"),
        ("PerfEvaluator  1.2 s  done\nblessed\n", "PerfEvaluator  1.2 s  done"),
    ],
)
def test_what_is_another_line_is_told(page, came):
    assert pages.difference(page, came)
