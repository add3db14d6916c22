"""Settings of how often a pipeline runs."""

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import PositiveInt


class ScheduleSettings(Section):
    """How often what a search finds will be used.

    Attributes:
        planned_runs: trainings that will use a plan, this one included: what they save together
            is what a search may cost. None: this one, and as many more as there were before it.
    """

    planned_runs: PositiveInt | None = None

    def run_count(self, *, runs_before: int = 0) -> int:
        """Returns how many trainings a plan that is found now is for.

        Args:
            runs_before: trainings that came before. What has been run n times is expected to be
                run n times more.
        """
        return self.planned_runs or 1 + runs_before
