"""Draws cases: mostly small ones, in which a few things come together."""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from tests.fuzzing.drawing import mostly
from tfx_perf.input import candidates

from . import reading
from .cases import AMPLE_BYTES, KINDS, Call, Case, Feature, File

BASES = tuple(name for name in candidates.CANDIDATES if name != "default")
_WIDE_SHARE, _WIDE_COLUMNS = 100, 1000
_DAMAGES = ("truncated", "garbage", "flipped", "no_bytes")


def names(base: str) -> Any:
    """Draws a candidate, at times with autotune on."""
    return mostly(base, [f"{base}+{candidates.Autotune.kind}"], share=2)


def _features(*, may_lack: bool) -> Any:
    drawn = st.builds(
        Feature,
        dtype=st.sampled_from(("int64", "float", "bytes")),
        kind=mostly("dense", KINDS, share=2),
        shape=st.sampled_from(((), (1,), (3,), (2, 2), (0,), (20,))),
        has_default=mostly(False, (True,), share=3),
        missing=mostly(0.0, (0.3, 0.95, 1.0), share=3),
        values=st.sampled_from((1, 3, 3, 8)),
        value_bytes=mostly(3, (1, 0, 10, 40, 1000, 30_000, 10**6), share=3),
        distinct=mostly(0, (1, 2, 6), share=3),
        columns=mostly(1, (2, 6), share=15),
        is_renamed=mostly(False, (True,), share=8),
    )

    def sensible(feature: Feature) -> Feature:
        if feature.is_required and not may_lack:  # which would end any reading
            feature = dataclasses.replace(feature, missing=0.0)
        return _of_sensible_size(feature)

    return drawn.map(sensible)


def _of_sensible_size(feature: Feature) -> Feature:
    if feature.value_bytes > 10_000:
        feature = dataclasses.replace(feature, shape=(), values=1, columns=1)
    if feature.dtype == "int64" and feature.value_bytes not in (1, 3, 10):
        feature = dataclasses.replace(feature, value_bytes=3)
    return feature


def _files() -> Any:
    return st.builds(
        File,
        records=st.sampled_from((0, 1, 2, 3, 5, 8, 13, 30, 30)),
        damage=mostly("", _DAMAGES, share=40),
        is_gzip=mostly(None, (True,), share=60),
        grows_from=mostly(None, (0, 4), share=12),
    )


def _calls() -> Any:
    number = st.integers(0, 4).map(str)
    lists = st.one_of(
        number.map(lambda name: (name,)),
        st.lists(number, min_size=2, max_size=4).map(tuple),
        number.map(lambda name: ("*", name)),
        number.map(lambda name: ("*", name, name, name)),
        st.just(("even",)),
        st.just(("even", "*")),
    )
    return st.builds(
        Call,
        patterns=st.integers(1, 40).flatmap(
            lambda n: st.just(("none",)) if n == 40 else st.just(("*",)) if n < 22 else lists
        ),
        batch_size=st.sampled_from((1, 2, 3, 4, 7, 16, 64)),
        shuffle=st.booleans(),
        shuffle_buffer_size=mostly(10000, (1, 2, 10), share=2),
        shuffle_seed=st.none() | st.integers(0, 3),
        num_epochs=st.sampled_from((1, 1, 1, 1, 1, 1, 2, 2, 3, 3, None, None, -1)),
        drop_final_batch=mostly(False, (True,), share=4),
        # More fail in TFXIO where they are more than the processors.
        reader_num_threads=mostly(-1, (1,), share=8),
        label=st.booleans(),
        use=mostly("iterate", tuple(reading.USES), share=2),
        at=st.integers(0, 6),
        content=mostly("", ("other", "same_size"), share=3),
    )


def cases(*, wide: bool = False) -> Any:
    """Returns a strategy for lists of cases: the same one for each candidate.

    Args:
        wide: draw some with a thousand columns, which take a minute.
    """
    narrow = st.builds(
        Case,
        features=mostly(False, (True,), share=30).flatmap(
            lambda lack: st.lists(_features(may_lack=lack), min_size=1, max_size=5).map(tuple)
        ),
        is_ragged=st.booleans(),
        files=mostly(None, ((File(records=1),) * 40, (File(records=600),)), share=40).flatmap(
            lambda rare: st.just(rare) if rare else st.lists(
                _files(), min_size=1, max_size=5).map(tuple)
        ),
        is_gzip=st.booleans(),
        growth=st.sampled_from((1, 10)),
        calls=st.sampled_from((1, 1, 1, 2, 2, 3)).flatmap(
            lambda count: st.tuples(*[_calls()] * count)
        ),
        memory_budget_bytes=mostly(AMPLE_BYTES, (500, 20000, 10**6), share=10),
    )
    rarely = st.integers(1, _WIDE_SHARE).map(lambda number: wide and number == _WIDE_SHARE)
    drawn = rarely.flatmap(lambda is_wide: narrow.map(_widened) if is_wide else narrow)
    return st.tuples(drawn, *map(names, BASES)).map(_each)


def _widened(case: Case) -> Case:
    feature = Feature(dtype=case.features[0].dtype, columns=_WIDE_COLUMNS)
    files = (File(records=3), File(records=2))
    return dataclasses.replace(
        case, features=(*case.features, feature), files=files, calls=case.calls[:1]
    )


def _each(drawn: tuple[Any, ...]) -> list[Case]:
    case, *found = drawn
    return [dataclasses.replace(case, candidate=name).consistent() for name in found]
