"""One training run as the gate sees it."""

import pydantic

from tfx_perf import records


class Run(records.Record):
    """A run's figures and what they were measured on.

    Attributes:
        run_id: names the run, e.g. TFX's pipeline run id.
        time: when the gate saw the run, with its time zone.
        environment: the fingerprint; see `tfx_perf.fingerprint`.
        figures: catalogue key to value. Only finite ones can be held, so that a NaN can
            never pass a comparison; what is missing here is what could not be measured.
    """

    run_id: str
    time: pydantic.AwareDatetime
    environment: dict[str, str]
    figures: dict[str, pydantic.FiniteFloat]
