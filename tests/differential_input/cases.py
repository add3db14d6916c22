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
    """A feature, or several alike."""

    dtype: str = "int64"  # `int64`, `float` or `bytes`
    kind: str = DENSE  # one of `KINDS`
    shape: tuple[int, ...] = ()  # of a dense feature
    has_default: bool = False  # whether a dense feature has a default value
    missing: float = 0.0  # share of the examples without it
    values: int = 3  # at most so many, where it is not dense
    value_bytes: int = 3  # longest of a bytes value; of an int64, up to so many as a varint
    distinct: int = 0  # how many different values there are; 0: any
    columns: int = 1  # how many such features there are
    is_renamed: bool = False  # whether the tensor has another name than the column

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
    records: int = 5  # how many
    # `truncated`, `garbage` in place of a record file, `flipped`: one bit of it, or `no_bytes` at
    # all
    damage: str = ""
    is_gzip: bool | None = None  # None: as the case says
    grows_from: int | None = None  # from this record on values are `growth` times as large


@dataclasses.dataclass(frozen=True)
class Call(JsonCase):
    """A call of the factory and what is done with the dataset."""

    # the files: `*` all, `even` every other, a number that file, `none` no file
    patterns: tuple[str, ...] = ("*",)
    batch_size: int = 4  # of the options, as all until `label`
    shuffle: bool = False
    shuffle_buffer_size: int = 10000
    shuffle_seed: int | None = None
    num_epochs: int | None = 1
    drop_final_batch: bool = False
    reader_num_threads: int = -1  # autotune
    label: bool = False  # whether the first feature is the label
    use: str = "iterate"  # what the user's code does; one of `reading.USES`
    at: int = 1  # in which batch (`take`, `skip`, an interruption)
    # what becomes of the files before the call: `other` rows, another number of them; or other
    # rows in `same_size` files
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
    """Calls of one factory. The defaults are the simplest ones; a failure is shrunk to them."""

    candidate: str = "columns"  # name of what serves behind the factory
    features: tuple[Feature, ...] = (Feature(),)  # of the schema
    is_ragged: bool = False  # the schema's `represent_variable_length_as_ragged`
    files: tuple[File, ...] = (File(),)  # of the split
    is_gzip: bool = False  # whether they are compressed
    growth: int = 1  # see `File.grows_from`
    calls: tuple[Call, ...] = (Call(),)  # of the factory, one after the other
    memory_budget_bytes: int = AMPLE_BYTES  # of each call

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

    def consistent(self) -> "Case":
        """Returns the nearest case that a user could have written, and that is worth running."""
        replace = dataclasses.replace
        features = tuple(map(_feature, self.features)) or (Feature(),)
        files = tuple(map(_file, self.files)) or (File(),)
        calls = tuple(_call(call, len(files)) for call in self.calls) or (Call(),)
        if any(call.use == "function" for call in calls):  # TensorFlow's fingerprint of no strings
            features = tuple(each if each.size else replace(each, shape=(1,)) for each in features)
        grows = any(file.grows_from is not None for file in files)
        return replace(
            self, features=features, files=files, growth=self.growth if grows else 1,
            calls=(replace(calls[0], content=""), *calls[1:]),
        )  # fmt: skip


def tensor_name(column: str, feature: Feature) -> str:
    return f"tensor_{column}" if feature.is_renamed else column


def _feature(feature: Feature) -> Feature:
    is_dense = feature.kind == DENSE
    changes = {"values": 3} if is_dense else {"shape": (), "has_default": False}
    if feature.kind in (SPARSE, SPARSE_MATRIX):  # it has a name of its own
        changes["is_renamed"] = False
    if feature.dtype == "float":
        changes["value_bytes"] = 3
    return dataclasses.replace(feature, **changes)


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
