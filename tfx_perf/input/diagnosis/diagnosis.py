"""Whether the input holds up training, and what there is to gain."""

from typing import ClassVar, Literal

from tfx_perf import records, statistics

_REMEDIES = {
    "read": "keep the split in RAM (columns), or put it on a faster disk",
    "decompress": "decompress once (columns), or take records from several files at a time and in "
    "blocks (block_reader)",
    "records": "keep the split in RAM (columns), or take records from several files at a time and "
    "in blocks (block_reader)",
    "shuffle": "shuffle row numbers (columns) or whole blocks (block_reader) instead of records",
    "batch": "batch rows in RAM (columns) or blocks of records (block_reader)",
    "parse": "parse once (columns) or big blocks in parallel (block_reader), and leave out the "
    "features that the model does not read",
    "rename": "finish many batches in one call (columns, block_reader)",
    "transform": "transform once, in the Transform component, instead of in every epoch",
    "pipeline": "keep the split in RAM (columns)",
}


class Stage(records.Record):
    """What one stage adds to the time of the stages before it.

    A stage that runs hidden behind a slower one adds nothing.

    Attributes:
        name: `read`: the bytes of the files; `decompress`: also handing over single records;
            `records`: the same of plain files; `shuffle`; `batch`; `parse`; `rename`: names,
            label and prefetch; `transform`: what the training code adds after the factory;
            `pipeline`: all that could not be taken apart.
        seconds_per_example: the time it adds.
        share: of the time of the whole pipeline, from 0 to 1.
        examples_per_second: of the pipeline up to and with this stage.
        bytes_per_second: the same in bytes that go into this stage: of the files for `read`, of
            serialised records after it.
    """

    name: str
    seconds_per_example: float
    share: float
    examples_per_second: float
    bytes_per_second: float

    @property
    def remedy(self) -> str:
        """What makes this stage cheaper, as the end of a sentence."""
        return _REMEDIES[self.name]


Bound = Literal["input", "compute", "contention", "unknown"]


class Diagnosis(records.Record):
    """Three rates of the default, and where the input's time goes.

    Attributes:
        pipeline_examples_per_second: the pipeline alone, as the training code builds it.
        train_examples_per_second: the training step alone, on one batch from memory; None
            without training code.
        together_examples_per_second: the training step fed by the pipeline; None without
            training code.
        headroom_ratio: the step alone over both together, paired: how many times as fast
            training would be if its input cost nothing. No pipeline can bring more.
        bound: what holds up training. `compute`: its input costs next to nothing. `input`: the
            pipeline alone is slower than the step alone. `contention`: each alone is fast
            enough, but not both at once, because they take turns or share the CPU.
            `unknown`: noise allows more than one of these, or there is no training code.
        rounds: how often each rate was measured.
        round_time_seconds: of measuring all three once; 0 in plans of versions that did not know.
        stages: of the pipeline, from the files on; empty if there was no time for them.
    """

    GONE: ClassVar[frozenset[str]] = frozenset({"autotune"})

    pipeline_examples_per_second: statistics.Interval
    train_examples_per_second: statistics.Interval | None = None
    together_examples_per_second: statistics.Interval | None = None
    headroom_ratio: statistics.Interval | None = None
    bound: Bound = "unknown"
    rounds: int
    round_time_seconds: float = 0.0
    stages: tuple[Stage, ...] = ()

    @property
    def is_fed(self) -> bool:
        """Whether the default feeds training as fast as it can go: leave it as it is."""
        return self.bound == "compute"

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that takes most of the input's time; None if they are not known."""
        return max(self.stages, key=lambda stage: stage.seconds_per_example, default=None)

    @property
    def user_share(self) -> float:
        """Share of the input's time that goes into what the training code adds; 0 if unknown."""
        return sum(stage.share for stage in self.stages if stage.name == "transform")

    @property
    def verdict(self) -> str:
        """What was found, in plain sentences with the numbers."""
        return " ".join(filter(None, (self._rates(), self._time())))

    def _rates(self) -> str:
        pipeline = _examples(self.pipeline_examples_per_second)
        alone, both = self.train_examples_per_second, self.together_examples_per_second
        gain = self.headroom_ratio
        if not (alone and both and gain):
            return f"The default input pipeline alone yields {pipeline} examples/s."
        train, together = _examples(alone), _examples(both)
        free = f"a free input would be {gain.value:.3g} times as fast"
        if self.bound == "compute":
            return (
                f"Compute-bound: the step alone trains {train} examples/s, fed by the default "
                f"{together}; a free input would bring {max(gain.high - 1, 0):.1%} at most "
                f"({gain.name}), so the default stays."
            )
        if self.bound == "input":
            return (
                f"Input-bound: the step alone trains {train} examples/s, fed by the default "
                f"{together}; {free}."
            )
        if self.bound == "contention":
            return (
                f"Contention: the step alone trains {train} examples/s and the pipeline alone "
                f"yields {pipeline}, but together they reach {together}; {free}. An input that "
                "takes less CPU time leaves more to the step."
            )
        return (
            f"Not clear after {self.rounds} round{'s' * (self.rounds != 1)}: the step alone trains "
            f"{train} examples/s, the pipeline alone yields {pipeline}, together they reach "
            f"{together}; {free} ({gain.spread})."
        )

    def _time(self) -> str:
        worst = self.bottleneck
        if not worst or self.is_fed:
            return ""
        return (
            f"Most of the input's time goes into {worst.name} ({worst.share:.0%}): {worst.remedy}."
        )


def _examples(rate: statistics.Interval) -> str:
    """Returns a rate to three digits, e.g. `54,300`."""
    value = float(f"{rate.value:.3g}")
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
