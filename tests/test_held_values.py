"""Values that code holds: the same in every process, and another where what counts is another."""

import json
import os
import sys

import pytest

from tests import processes
from tfx_perf.core.structural_hash import Describer, digest

# A module of users, and what its functions hold in a cell, a global and a default.
SOURCE = """
import collections, dataclasses, datetime, decimal, enum, fractions, functools, io, itertools
import json, logging, math, os, pathlib, random, re, threading, types, uuid, weakref
from concurrent import futures

import numpy as np

@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = None

@dataclasses.dataclass
class Settings:
    a: object

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Number(enum.IntEnum):
    ONE = 1
    TWO = 2

class Flags(enum.Flag):
    A = 1
    B = 2

Pair = collections.namedtuple("Pair", "a b")

class Scaled:
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        return x * self.by

class Shifted(Scaled):
    def __call__(self, x):
        return x + self.by

def count(n):
    yield from range(n)

def one(x):
    return x + 1

def two(x):
    return x + 2

def calls(function):
    return lambda x: function(x)

def in_a_set_and_beside(*items):
    return {*items}, items

class Coded(dict):
    __slots__ = ("a", "b")
    def run(self, x=object()):
        return [x in {"a", "b", "c"}, two(x), json.dumps(x), super().keys()]

def held(value):
    def function(x, default=value):
        return value, GLOBAL
    function.__globals__["GLOBAL"] = value
    return function
"""
# Two expressions for each kind, whose values are not to be taken for each other.
COUNTED = {
    "module": ("os", "math"),
    "function": ("one", "two"),
    "lambda": ("lambda x: x + 1", "lambda x: x + 2"),
    "closure": ("calls(one)", "calls(two)"),
    "builtin": ("len", "sum"),
    "method of a word": ("'a'.join", "'b'.join"),
    "ufunc": ("np.add", "np.subtract"),
    "cached function": ("functools.lru_cache(one)", "functools.lru_cache(two)"),
    "class": ("type('K', (), {'a': 1})", "type('K', (), {'a': 2})"),
    "class of Python": ("collections.OrderedDict", "collections.Counter"),
    "class with code": ("Coded", "type('Coded', (dict,), {'run': one})"),
    "class method": (
        "type('K', (), {'m': classmethod(one)}).m", "type('K', (), {'m': classmethod(two)}).m"
    ),
    "partial": ("functools.partial(one, 1)", "functools.partial(two, 1)"),
    "partial's argument": (
        "functools.partial(max, Frozen(1))", "functools.partial(max, Frozen(2))"
    ),
    "bound method": ("Scaled(1).__call__", "Shifted(1).__call__"),
    "object": ("Scaled(1)", "Shifted(1)"),
    "dataclass": ("Settings(1)", "Settings(2)"),
    "frozen dataclass": ("Frozen(1)", "Frozen(2)"),
    "nested dataclass": ("Frozen(1, Frozen(2))", "Frozen(1, Frozen(3))"),
    "namespace": ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(a=2)"),
    "named tuple": ("Pair(1, 2)", "Pair(1, 3)"),
    "enum": ("Color.RED", "Color.BLUE"),
    "enum of integers": ("Number.ONE", "Number.TWO"),
    "flag": ("Flags.A", "Flags.A | Flags.B"),
    "set": ("{'a', 'b', 'c'}", "{'a', 'b', 'd'}"),
    "frozen set": ("frozenset('abc')", "frozenset('abd')"),
    "set of tuples": ("{('a', 1), ('b', 2)}", "{('a', 1), ('b', 3)}"),
    "set of paths": (
        "{pathlib.Path('a'), pathlib.Path('b')}", "{pathlib.Path('a'), pathlib.Path('c')}"
    ),
    "set of enums": ("{Color.RED}", "{Color.BLUE}"),
    "set of functions": ("{one, calls(one)}", "{one, calls(two)}"),
    "items of a set": (
        "in_a_set_and_beside(('a', 1), ('b', 2))", "in_a_set_and_beside(('b', 2), ('a', 1))"
    ),
    "functions in a set": (
        "in_a_set_and_beside(one, two, calls(one))", "in_a_set_and_beside(two, one, calls(one))"
    ),
    "dictionary": ("{'a': 1}", "{'a': 2}"),
    "dictionary by numbers": ("{1: 1}", "{2: 1}"),
    "dictionary of objects": ("{'a': Frozen(1)}", "{'a': Frozen(2)}"),
    "dictionary of sets": ("{'a': {'x', 'y'}}", "{'a': {'x', 'z'}}"),
    "defaultdict": ("collections.defaultdict(int, a=1)", "collections.defaultdict(int, a=2)"),
    "mapping proxy": ("types.MappingProxyType({'a': 1})", "types.MappingProxyType({'a': 2})"),
    "list of several kinds": ("[1, pathlib.Path('a'), {'b'}]", "[1, pathlib.Path('a'), {'c'}]"),
    "deque": ("collections.deque([1])", "collections.deque([2])"),
    "range": ("range(3)", "range(4)"),
    "slice": ("slice(3)", "slice(4)"),
    "complex": ("1j", "2j"),
    "bytes": ("b'a'", "b'b'"),
    "nan": ("math.nan", "math.inf"),
    "decimal": ("decimal.Decimal(1)", "decimal.Decimal(2)"),
    "fraction": ("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)"),
    "path": ("pathlib.Path('a')", "pathlib.Path('b')"),
    "uuid": ("uuid.UUID(int=1)", "uuid.UUID(int=2)"),
    "regex": ("re.compile('a' * 300 + 'b')", "re.compile('a' * 300 + 'c')"),
    "regex's flags": ("re.compile('a')", "re.compile('a', re.I)"),
    "date": ("datetime.date(2020, 1, 1)", "datetime.date(2020, 1, 2)"),
    "datetime": ("datetime.datetime(2020, 1, 1)", "datetime.datetime(2020, 1, 2)"),
    "time": ("datetime.time(1)", "datetime.time(2)"),
    "timedelta": ("datetime.timedelta(1)", "datetime.timedelta(2)"),
    "time zone": ("datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))"),
    "array": ("np.arange(3)", "np.arange(3)[::-1]"),
    "array of objects": ("np.array([1, 'a'], object)", "np.array([2, 'a'], object)"),
    "scalar": ("np.float32(1)", "np.float64(1)"),
    "dtype": ("np.dtype('f4')", "np.dtype('f8')"),
    "tensor": ("tf.constant(1.0)", "tf.constant(2.0)"),
    "tensor's dtype": ("tf.float32", "tf.bfloat16"),
    "tensor's shape": ("tf.TensorShape([1])", "tf.TensorShape([2])"),
    "tensor's spec": ("tf.TensorSpec([1])", "tf.TensorSpec([2])"),
    "tf.function": ("tf.function(one)", "tf.function(two)"),
    "function of TensorFlow": ("tf.nn.relu", "tf.nn.elu"),
}
# What changes, or is of one process: only what it is counts.
STATES = {
    "file": "open(os.devnull)",
    "text": "io.StringIO('a')",
    "lock": "threading.Lock()",
    "event": "threading.Event()",
    "thread": "threading.Thread()",
    "thread's values": "threading.local()",
    "thread pool": "futures.ThreadPoolExecutor(1)",
    "generator": "count(3)",
    "iterator": "itertools.count()",
    "weak reference": "weakref.ref(Scaled)",
    "logger": "logging.getLogger('a')",
    "random": "random.Random(1)",
    "NumPy's generator": "np.random.default_rng(1)",
    "its method": "np.random.default_rng(1).normal",
    "nothing": "object()",
    "list with a lock": "[threading.Lock()]",
    "dictionary of generators": "{'a': random.Random(1)}",
    "variable": "tf.Variable(1.0)",
    "TensorFlow's generator": "tf.random.Generator.from_seed(1)",
}
WITH_TENSORFLOW = "import tensorflow as tf\n" + SOURCE


def digests(expressions, source):
    """Returns what is found of functions that hold each value; each in a module of its own."""
    found = []
    for expression in expressions:
        names = {"__name__": "user_module"}
        exec(compile(source, "user_module.py", "exec"), names)
        found.append(digest(Describer().of(eval(f"held({expression})", names))))
    return found


def elsewhere(expressions, source, *, seed):
    """Returns `digests` of an interpreter of its own, which has another order of sets."""
    program = (
        "import json, sys; from tests import test_held_values as cases;"
        "print(json.dumps(cases.digests(*json.load(sys.stdin))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    there = processes.python(
        "-c", program, input=json.dumps([expressions, source]), env=environment, check=True
    )
    return json.loads(there.stdout)


@pytest.mark.parametrize("pair", COUNTED.values(), ids=COUNTED)
def test_another_value_is_another_code(pair):
    one, other = digests(pair, WITH_TENSORFLOW)
    assert one != other


@pytest.mark.parametrize("value", STATES.values(), ids=STATES)
def test_of_what_changes_its_kind_counts(value):
    state, again, another = digests([value, value, "Color.RED"], WITH_TENSORFLOW)
    assert state == again != another


@pytest.mark.parametrize(
    "source",
    [SOURCE, pytest.param(WITH_TENSORFLOW, marks=pytest.mark.slow)],
    ids=["Python", "TensorFlow"],
)
def test_every_process_finds_the_same(source):
    values = [value for pair in COUNTED.values() for value in pair] + [*STATES.values()]
    values = [value for value in values if source is WITH_TENSORFLOW or "tf." not in value]
    here, there = (elsewhere(values, source, seed=seed) for seed in "13")
    assert not [value for value, a, b in zip(values, here, there, strict=True) if a != b]
