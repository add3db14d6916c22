"""Draws cases with a seed."""

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st


def drawn(cases: Any, *, count: int, seed: int, act: Callable[[Any], None]) -> None:
    """Draws cases and calls `act` with each.

    Hypothesis only draws: it would stop at the first failure, and its way of shrinking takes
    hundreds of checks; see `shrinking`.
    """

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cases)
    def run(case: Any) -> None:
        act(case)

    run()


def mostly(simple: Any, others: Sequence[Any], *, share: int) -> Any:
    """Draws `simple` in all but one of `share` cases."""
    return st.integers(1, share).flatmap(
        lambda number: st.sampled_from(others) if number == share else st.just(simple)
    )
