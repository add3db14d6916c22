"""Hashes of code: equal for the same code in any process, and different for other code."""

import functools
import textwrap

import pytest

from tfx_perf.core.structural_hash import Describer, digest


def code_of(code):
    return digest(Describer().of(code))


def run(source):
    names = {"__name__": "user_module"}
    exec(compile(textwrap.dedent(source), "user_module.py", "exec"), names)
    return names


def of_f(source):
    return code_of(run(source)["f"])


SAME = [
    ("def f(x): return x + 1", "# moved\n\ndef f(x):\n    # says why\n    return x + 1"),
    ('def f(x): "before"; return x', 'def f(x): "after"; return x'),
    ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'a', 'b'}"),
]
DIFFERENT = [
    ("def f(x): return x + 1", "def f(x): return x - 1"),
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("def f(x): return x * 1", "def f(x): return x * 1.0"),
    ("def f(x): return x.a", "def f(x): return x.b"),
    ("def f(x, y=1): return x", "def f(x, y=2): return x"),
    ("def f(x, *, y=1): return x", "def f(x, *, y=2): return x"),
    ("def f(x): return (lambda: 1)()", "def f(x): return (lambda: 2)()"),
    ("A = 1\ndef f(x): return x * A", "A = 2\ndef f(x): return x * A"),
    ("A = {'a': 1}\ndef f(x): return A", "A = {'a': 2}\ndef f(x): return A"),
    ("g = lambda: 1\ndef f(x): return g()", "g = lambda: 2\ndef f(x): return g()"),
    ("def g(a):\n return lambda: a\nf = g(1)", "def g(a):\n return lambda: a\nf = g(2)"),
    ("class f:\n def g(self): return 1", "class f:\n def g(self): return 2"),
    ("class f:\n a = 1", "class f:\n a = 2"),
    *((f"class f:\n @{kind}\n def g(*a): return 1", f"class f:\n @{kind}\n def g(*a): return 2")
      for kind in ("property", "staticmethod")),
    ("class B:\n a = 1\nclass f(B): pass", "class B:\n a = 2\nclass f(B): pass"),
    ("class f(dict): pass", "class f(list): pass"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_edits_without_effect_are_not_seen(one, other):
    assert of_f(one) == of_f(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_an_edit_is_seen(one, other):
    assert of_f(one) == of_f(one)
    assert of_f(one) != of_f(other)


def test_a_wrapper_is_looked_through():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    assert code_of(logged(lambda: 1)) != code_of(logged(lambda: 2))


def test_functions_that_name_each_other_have_a_code():
    source = "def g(x): return f(x)\ndef f(x): return g(x) + {}"
    assert of_f(source.format(1)) == of_f(source.format(1))
    assert of_f(source.format(1)) != of_f(source.format(2))


def test_objects_go_by_class_configuration_and_what_their_code_names():
    source = """
        class Loss:
            def __init__(self, alpha, unused):
                self.alpha, self.here = alpha, object()
                vars(self)["unused"] = unused
        """
    Loss = run(source)["Loss"]
    a, b, c = (digest(Describer().of(Loss(*given))) for given in ((1, 2), (1, 3), (2, 2)))
    assert a == b
    assert a != c


def test_users_classes_are_listed():
    found = Describer()
    found.of(run("class Base: pass\nclass Mine(Base): pass\nf = Mine()")["f"])
    assert sorted(found.code) == ["Base", "Mine"]


class First:
    def is_known(self):
        return type(self) in KNOWN


class Second:
    def is_known(self):
        return type(self) in KNOWN


class Third:
    def is_known(self):
        return type(self) in KNOWN


KNOWN = {First, Second, Third}


def test_classes_in_a_set_that_they_name_are_described_once():
    assert code_of(lambda: KNOWN) == code_of(lambda: KNOWN)
