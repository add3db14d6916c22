"""Draws cases, serves each with the candidates, and prints what failed, by signature.

For example: `python -m tests.differential_input --cases 200 --seed 7 --candidate columns`.
"""

import argparse
import pathlib
import random

from tests.fuzzing.drawing import drawn
from tests.fuzzing.failures import Failures

from .cases import Case
from .checking import Checker
from .memory import MemoryChecker
from .memory import cases as memory_cases
from .strategies import BASES, cases


def _main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.differential_input"
    )
    parser.add_argument("--cases", type=int, default=200, help="so many, each for all candidates")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--candidate", choices=BASES, help="only this one, with autotune on or off")
    parser.add_argument("--memory", action="store_true", help="measure it, each in a process")
    parser.add_argument("--case", help="one case as JSON, instead of drawn ones")
    parser.add_argument("--shrink", action="store_true", help="the smallest case of each group")
    parser.add_argument("--out", type=pathlib.Path, help="a file for every failure, as JSON lines")
    arguments = parser.parse_args()
    checker = MemoryChecker() if arguments.memory else Checker()
    failures = Failures(checker, title=arguments.candidate or "all candidates", out=arguments.out)
    print(f"seed {arguments.seed}", flush=True)

    def add(drawn_cases: list[Case]) -> None:
        for case in drawn_cases:
            if arguments.candidate in (None, case.base):
                failures.add(case)

    if arguments.case:
        failures.add(Case.from_json(arguments.case))
    else:
        strategy = memory_cases() if arguments.memory else cases(wide=True)
        drawn(strategy, count=arguments.cases, seed=arguments.seed, act=add)
    print(failures.table(shrink=arguments.shrink))
    if arguments.memory:
        print(checker.table())
    checker.close()


if __name__ == "__main__":
    _main()
