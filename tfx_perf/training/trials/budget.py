"""How long trials may take before they count as hung."""

# They keep to their budget but for the call that they are in, which may compile, or hang.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


def limit_seconds(budget_seconds: float) -> float:
    """Returns after how long trials are ended from outside.

    Args:
        budget_seconds: theirs.
    """
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS
