"""Case: examples, the calls of the dataset factory that read them, and what reads the dataset."""

import dataclasses
import math

from tests.fuzzing.cases import JsonCase

AMPLE_BYTES = 2**30

# How a feature is represented (tensorflow_metadata's TensorRepresentation).
DENSE, VARIABLE = "dense", "variable"
SPARSE, SPARSE_MATRIX = "sparse", "sparse_matrix"  # values with one index, with two
UNIFORM, NESTED = "uniform", "nested"  # ragged, in rows of 2; ragged, with row lengths
KINDS = (DENSE, VARIABLE, SPARSE, SPARSE_MATRIX, UNIFORM, NESTED)

# What user code does with the factory; see `reading.py`.
IN_GRAPH = ("function", "interleave", "flat_map")


@dataclasses.dataclass(frozen=True)
class Feature(JsonCase):
    """A feature, or several alike.

    Attributes:
        dtype: `int64`, `float` or `bytes`.
        kind: one of `KINDS`.
        shape: of a dense feature.
        has_default: whether a dense feature has a default value.
        missing: share of the examples without it.
        values: at most so many, where it is not dense.
        value_bytes: longest of a bytes value; of an int64, up to so many as a varint.
        distinct: how many different values there are; 0: any.
        columns: how many such features there are.
        is_renamed: whether the tensor has another name than the column.
    """

    dtype: str = "int64"
    kind: str = DENSE
    shape: tuple[int, ...] = ()
    has_default: bool = False
    missing: float = 0.0
    values: int = 3
    value_bytes: int = 3
    distinct: int = 0
    columns: int = 1
    is_renamed: bool = False

    @property
    def size(self) -> int:
        """Values of a dense feature, or at most so many."""
        return math.prod(self.shape) if self.kind == DENSE else self.values

    @property
    def is_required(self) -> bool:
        """Whether an example without it is an error."""
        return self.kind == DENSE and not self.has_default


@dataclasses.dataclass(frozen=True)
class File(JsonCase):
    """A record file.

    Attributes:
        records: how many.
        damage: `truncated`, `garbage` in place of a record file, `flipped`: one bit of it, or
            `no_bytes` at all.
        is_gzip: None: as the case says.
        grows_from: from this record on values are `growth` times as large.
    """

    records: int = 5
    damage: str = ""
    is_gzip: bool | None = None
    grows_from: int | None = None


@dataclasses.dataclass(frozen=True)
class Call(JsonCase):
    """A call of the factory and what is done with the dataset.

    Attributes:
        patterns: the files: `*` all, `even` every other, a number that file, `none` no file.
        batch_size: of the options, as all until `label`.
        shuffle: same.
        shuffle_buffer_size: same.
        shuffle_seed: same.
        num_epochs: same.
        drop_final_batch: same.
        reader_num_threads: same; -1 is autotune.
        label: whether the first feature is the label.
        use: what the user's code does; one of `reading.USES`.
        at: in which batch (`take`, `skip`, an interruption).
        content: what becomes of the files before the call: `other` rows, another number of
            them; or other rows in `same_size` files.
    """

    patterns: tuple[str, ...] = ("*",)
    batch_size: int = 4
    shuffle: bool = False
    shuffle_buffer_size: int = 10000
    shuffle_seed: int | None = None
    num_epochs: int | None = 1
    drop_final_batch: bool = False
    reader_num_threads: int = -1
    label: bool = False
    use: str = "iterate"
    at: int = 1
    content: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether TFXIO fixes the order by its rules, not by its random numbers."""
        return not self.shuffle

    @property
    def is_endless(self) -> bool:
        """Whether the dataset has no end; tf.data takes -1 for that, too."""
        return self.num_epochs is None or self.num_epochs < 0

    @property
    def is_repeatable(self) -> bool:
        """Whether the order is the same each time."""
        return not self.shuffle or self.shuffle_seed is not None


@dataclasses.dataclass(frozen=True)
class Case(JsonCase):
    """Calls of one factory. The defaults are the simplest ones; a failure is shrunk to them.

    Attributes:
        candidate: name of what serves behind the factory.
        features: of the schema.
        is_ragged: the schema's `represent_variable_length_as_ragged`.
        files: of the split.
        is_gzip: whether they are compressed.
        growth: see `File.grows_from`.
        calls: of the factory, one after the other.
        memory_budget_bytes: of each call.
    """

    candidate: str = "columns"
    features: tuple[Feature, ...] = (Feature(),)
    is_ragged: bool = False
    files: tuple[File, ...] = (File(),)
    is_gzip: bool = False
    growth: int = 1
    calls: tuple[Call, ...] = (Call(),)
    memory_budget_bytes: int = AMPLE_BYTES

    @property
    def base(self) -> str:
        """The candidate without wrappers."""
        return self.candidate.split("+")[0]

    @property
    def names(self) -> list[list[str]]:
        """Names of the columns of each feature."""
        return [
            [f"f{number}" if feature.columns == 1 else f"f{number}_{column:04d}"
             for column in range(feature.columns)]
            for number, feature in enumerate(self.features)
        ]  # fmt: skip

    @property
    def label(self) -> str:
        """The tensor that is the label, where there is one."""
        return tensor_name(self.names[0][0], self.features[0])


def tensor_name(column: str, feature: Feature) -> str:
    """Returns the name of a column's tensor."""
    return f"tensor_{column}" if feature.is_renamed else column


def consistent(case: Case) -> Case:
    """Returns the nearest case that a user could have written, and that is worth running."""
    features = tuple(map(_feature, case.features)) or (Feature(),)
    files = tuple(map(_file, case.files)) or (File(),)
    calls = tuple(_call(call, len(files)) for call in case.calls) or (Call(),)
    calls = (dataclasses.replace(calls[0], content=""), *calls[1:])
    if any(call.use == "function" for call in calls):  # TensorFlow's fingerprint of no strings
        features = tuple(
            dataclasses.replace(feature, shape=(1,)) if not feature.size else feature
            for feature in features
        )
    if not any(file.grows_from is not None for file in files):
        case = dataclasses.replace(case, growth=1)
    return dataclasses.replace(
        case,
        features=features,
        files=files,
        calls=calls,
    )


def _feature(feature: Feature) -> Feature:
    if feature.kind != DENSE:
        feature = dataclasses.replace(feature, shape=(), has_default=False)
    if feature.kind in (SPARSE, SPARSE_MATRIX):  # it has a name of its own
        feature = dataclasses.replace(feature, is_renamed=False)
    if feature.kind == DENSE:
        feature = dataclasses.replace(feature, values=3)
    if feature.dtype == "float":
        feature = dataclasses.replace(feature, value_bytes=3)
    return feature


def _file(file: File) -> File:
    return dataclasses.replace(file, records=max(0, file.records))


def _call(call: Call, files: int) -> Call:
    patterns = tuple(
        str(int(name) % files) if name.isdigit() else name for name in call.patterns
    ) or ("*",)
    call = dataclasses.replace(call, patterns=patterns, batch_size=max(1, call.batch_size))
    if not call.shuffle:
        call = dataclasses.replace(call, shuffle_seed=None, shuffle_buffer_size=10000)
    if call.is_endless and call.use in ("repeat", "cache"):
        call = dataclasses.replace(call, num_epochs=1)
    return call
