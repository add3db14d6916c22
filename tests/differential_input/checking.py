"""Serves a case with its candidate and with TFXIO, and says what is wrong."""

import collections
import dataclasses
import gc
import itertools
import logging
import pathlib
import re
import shutil
import tempfile
from typing import Any

from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from tests.fuzzing import shrinking
from tests.fuzzing.differences import Difference, gist
from tfx_perf.components.input_tuner import parsers, sources
from tfx_perf.input import apply, candidates
from tfx_perf.input import parameters as parameters_lib
from tfx_perf.input.candidates import copy

from . import promises, reading
from .cases import Call, Case, consistent
from .comparing import difference
from .examples import Split, schema_of

_CHECKS_TO_SHRINK = 60
_FELL_BACK = "TFXIO's default reads"


@dataclasses.dataclass(frozen=True)
class _Expected:
    """What TFXIO gives for a call; see `comparing.difference`."""

    reading: reading.Reading
    epoch: collections.Counter[bytes]


class Checker:
    """Checks cases in this process.

    Attributes:
        count: cases that were checked.
        remarks: calls that were left to the default, and those on which TFXIO itself raised.
    """

    def __init__(self) -> None:
        """Begins without cases."""
        self.count = 0
        self.remarks: collections.Counter[str] = collections.Counter()
        gc.freeze()  # what is imported need not be visited with every graph
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="differential-input-"))
        self._numbers = itertools.count()
        self._oracle: tuple[Case, list[_Expected]] | None = None
        artifact = standard_artifacts.Examples()
        examples_utils.set_payload_format(
            artifact, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
        )
        self._default_factory = sources.default_factory([artifact])
        self._parser_for = parsers.parser_for([artifact])

    def check(self, case: Case) -> Difference | None:
        """Returns what is wrong; None if all promises are kept."""
        self.count += 1
        expected = self._expected(case)
        split = self._split(case)
        factory = self.factory(case, split)
        fell_back = None
        try:
            for call, one in zip(case.calls, expected, strict=True):
                with _fallbacks() as reasons:
                    wrong = self._call(case, call, split=split, factory=factory, expected=one)
                if wrong:
                    return _of(case, wrong)
                fell_back = fell_back or self._unexcused(case, call, reasons, expected=one)
        finally:
            shutil.rmtree(split.folder.parent)
        return fell_back and _of(case, fell_back)

    def shrunk(self, case: Case, signature: str) -> Case:
        """Returns a simpler case with the same signature."""

        def fails(smaller: Case) -> bool:
            found = self.check(smaller)
            return found is not None and found.signature == signature

        return shrinking.shrunk(
            case,
            fails,
            simplest=Case(candidate=case.base),
            consistent=consistent,
            limit=_CHECKS_TO_SHRINK,
        )

    def close(self) -> None:
        """Removes the files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def factory(self, case: Case, split: Split) -> Any:
        """Returns the factory with the case's candidate behind it."""
        settings: dict[str, Any] = {"unused_features": case.unused}
        if "copy" in case.wrappers:
            settings |= _copied(case, split)
        return apply.serving(
            candidates.make(case.candidate, parameters_lib.Parameters(**settings)),
            self._default_factory,
            memory_budget_bytes=case.memory_budget_bytes,
            parser_for=self._parser_for,
        )

    def _split(self, case: Case) -> Split:
        # A path that no case before has had.
        return Split(case, self._folder / str(next(self._numbers)) / "split")

    def _expected(self, case: Case) -> list[_Expected]:
        key = dataclasses.replace(
            case, candidate="default+projection" if case.unused else "default"
        )
        if self._oracle is None or self._oracle[0] != key:
            split = self._split(case)
            self._oracle = key, [self._of_default(case, call, split) for call in case.calls]
            shutil.rmtree(split.folder.parent)
        return self._oracle[1]

    def _of_default(self, case: Case, call: Call, split: Split) -> _Expected:
        if call.content:
            split.replace(call.content)
        whole = dataclasses.replace(
            call, shuffle=False, num_epochs=1, drop_final_batch=False, batch_size=50, use="iterate"
        )
        reader = self._reader(case, whole, split, factory=self._default_factory)
        epoch, length = reader.read(), 0
        if not epoch.error:
            length = sum(len(batch.rows) for batch in epoch.streams["first"])
            if call.use == "function":
                epoch = reading.fingerprints(reader)
        found = self._reader(
            case, call, split, factory=self._default_factory, epoch_rows=length
        ).read()
        if found.error:
            self.remarks[f"TFXIO raises {found.error[0]}: {gist(found.error[1])}"] += 1
        rows = [row for batch in epoch.streams.get("first", ()) for row in batch.rows]
        return _Expected(found, collections.Counter([] if epoch.error else rows))

    def _call(
        self, case: Case, call: Call, *, split: Split, factory: Any, expected: _Expected
    ) -> Difference | None:
        if call.content:
            split.replace(call.content)
        rows = expected.epoch.total()
        found = self._reader(case, call, split, factory=factory, epoch_rows=rows).read()
        return difference(call, expected.reading, found, expected.epoch)

    def _unexcused(
        self, case: Case, call: Call, reasons: list[str], *, expected: _Expected
    ) -> Difference | None:
        """Counts what was left to the default, and says if it ought to have been served."""
        if expected.reading.error:
            return None
        excuse = promises.excuse(case, call, epoch_rows=expected.epoch.total())
        for reason in dict.fromkeys(reasons):
            self.remarks[f"{case.base} falls back: {gist(reason)}"] += 1
            is_error = re.match(r"\w*(Error|Exception|Iteration)\b", reason)
            if not excuse or (is_error and excuse != "damaged files"):
                where = f" [{excuse}]" if excuse else ""
                return Difference(f"falls back{where}: {gist(reason)}", reason)
        return None

    def _reader(
        self, case: Case, call: Call, split: Split, *, factory: Any, epoch_rows: int = 0
    ) -> reading.Reader:
        return reading.Reader(
            factory=factory,
            schema=schema_of(case),
            paths=split.paths(call.patterns),
            call=call,
            label=case.label,
            unused=frozenset(case.unused),
            epoch_rows=epoch_rows,
        )


def _of(case: Case, wrong: Difference) -> Difference:
    return dataclasses.replace(wrong, signature=f"{case.base}: {wrong.signature}")


def _copied(case: Case, split: Split) -> dict[str, Any]:
    """Writes the copy that a plan for the first call would have."""
    paths = split.paths(case.calls[0].patterns)
    files = tuple(sorted({str(f) for path in paths for f in split.folder.parent.glob(
        str(pathlib.Path(path).relative_to(split.folder.parent)))}))  # fmt: skip
    folder = split.folder.parent / "copy"
    folder.mkdir()
    shards = copy.shard_paths(str(folder), 2)
    try:
        copy.write_shards((chunk for file in files for chunk in copy.read_chunks(file)), shards)
    except Exception:  # damaged: InputTuner would have written none
        return {}
    return {"copy_folder": str(folder), "copied_files": files}


class _fallbacks(logging.Handler):  # noqa: N801 (used like a function)
    """Collects why the candidate did not serve."""

    def __enter__(self) -> list[str]:
        self._reasons: list[str] = []
        logging.getLogger(apply.__name__).addHandler(self)
        return self._reasons

    def __exit__(self, *error: object) -> None:
        logging.getLogger(apply.__name__).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if _FELL_BACK in record.msg:
            self._reasons.append(str(record.args[-1]))
