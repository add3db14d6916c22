"""What statistics say of the default's output and the tuned one's."""

from tfx_perf import records


class StatisticDifference(records.Record):
    """One statistic that is not the same.

    Attributes:
        feature: its name; empty for a statistic of the whole data.
        statistic: e.g. `mean`, `num_missing`, `top_values`.
        default: its value in the default's output, as text; empty if it has none there.
        tuned: the same of the tuned output.
    """

    feature: str
    statistic: str
    default: str
    tuned: str


class StatisticsComparison(records.Record):
    """The statistics of both outputs, held against each other.

    Attributes:
        example_count: examples of the default's output that were read.
        feature_count: features, the label among them.
        complete: whether these are all examples of an epoch; otherwise the first ones.
        differences: what is not the same.
    """

    example_count: int
    feature_count: int
    complete: bool
    differences: tuple[StatisticDifference, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether every statistic is the same."""
        return not self.differences
