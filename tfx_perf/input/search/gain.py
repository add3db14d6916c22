"""What a faster input can still bring: no search may cost more than that."""

import dataclasses
import math

from tfx_perf import formatting
from tfx_perf.input.diagnosis import diagnosis as diagnosis_lib
from tfx_perf.input.search import final as final_lib
from tfx_perf.input.timing import measure


@dataclasses.dataclass(frozen=True)
class Gain:
    """The seconds that the trainings to come can save.

    Attributes:
        example_count: examples that they read in all; infinite if nobody knows.
        planned_runs: how many they are.
    """

    example_count: float
    planned_runs: int = 1

    def possible_seconds(self, diagnosis: diagnosis_lib.Diagnosis) -> float:
        """Returns what an input that costs nothing would save, in place of the default.

        It is the most that the measurements allow: where the step has not been timed, all that
        reading takes; of fewer rounds than have an interval, what is not beyond doubt.
        """
        fed, headroom = diagnosis.together_examples_per_second, diagnosis.headroom_ratio
        if not (fed and headroom):
            return self.example_count / diagnosis.pipeline_examples_per_second.low
        doubt = 1.0 if diagnosis.rounds >= measure.MIN_ROUNDS else measure.BEYOND_DOUBT
        return self._seconds(fed.value, ratio=doubt * headroom.high)

    def left_seconds(self, final: final_lib.FinalComparison) -> float:
        """Returns the same, in place of a candidate that was compared on the train step."""
        if final.fed_ratio is None:
            return float("inf")
        return self._seconds(
            final.tuned_examples_per_second.value, ratio=1 / final.fed_ratio.value
        )

    def too_little(self, diagnosis: diagnosis_lib.Diagnosis, *, search_seconds: float) -> str:
        """Returns why nothing is searched for.

        Args:
            diagnosis: of the default.
            search_seconds: what the shortest search would take.
        """
        fed = diagnosis.together_examples_per_second
        possible_seconds = self.possible_seconds(diagnosis)
        if not possible_seconds:
            return (
                "Training is as fast as if its input cost nothing, so no faster one was looked for."
            )
        enough_runs = math.ceil(self.planned_runs * search_seconds / possible_seconds)
        possible = formatting.format_seconds(possible_seconds)
        if fed is None:
            saved = f"Reading takes about {possible} with the default, and no input can save more"
        else:
            training = formatting.format_seconds(self.example_count / fed.value)
            saved = (
                f"Reading and training take about {training} with the default, of which no input "
                f"can save more than {possible}"
            )
        return (
            f"{saved}: too little for a search of about "
            f"{formatting.format_seconds(search_seconds)}, so the default stays. With "
            f"schedule.planned_runs: {enough_runs} there would be one."
        )

    def _seconds(self, examples_per_second: float, *, ratio: float) -> float:
        """Returns what training `ratio` times as fast saves."""
        if ratio <= 1:
            return 0.0
        return self.example_count / examples_per_second * (1 - 1 / ratio)
