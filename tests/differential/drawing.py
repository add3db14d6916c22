"""Draws cases with a seed."""

from collections.abc import Callable

import hypothesis

from .cases import Case
from .strategies import cases


def drawn(package: str, *, count: int, seed: int, act: Callable[[Case], None]) -> None:
    """Draws cases and calls `act` with each.

    Hypothesis only draws: it would stop at the first failure, and its way of shrinking takes
    hundreds of trainings; see `Checker.shrunk`.

    Args:
        package: the Keras line.
        count: how many.
        seed: of the draw.
        act: what to do with a case.
    """

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cases(package))
    def run(case: Case) -> None:
        act(case)

    run()
