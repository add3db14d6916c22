"""What training costs, in money."""

_EXAMPLES, _SECONDS_IN_HOUR = 1e6, 3600.0


def of_million_examples(
    *, examples_per_second: float, price_per_hour: float, host_count: int = 1
) -> float:
    """Returns the price of the machines for the time that a million examples take.

    Args:
        examples_per_second: of all machines together.
        price_per_hour: of one machine, in any currency.
        host_count: how many machines there are.
    """
    hours = _EXAMPLES / examples_per_second / _SECONDS_IN_HOUR
    return price_per_hour * host_count * hours
