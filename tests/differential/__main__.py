"""Draws cases, runs them, and prints what failed, by signature.

For example: `python -m tests.differential --cases 200 --seed 7 --package keras`.
"""

import argparse
import pathlib
import random

from tests.fuzzing.drawing import drawn
from tests.fuzzing.failures import Failures

from .cases import Case
from .checking import Checker
from .strategies import cases, singles


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.differential")
    parser.add_argument("--cases", type=int, default=200, help="at most so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--package", choices=("keras", "tf_keras"), default="keras")
    parser.add_argument("--case", help="one case as JSON, instead of drawn ones")
    parser.add_argument("--singles", action="store_true", help="one unusual thing in each case")
    parser.add_argument("--shrink", action="store_true", help="the smallest case of each group")
    parser.add_argument("--out", type=pathlib.Path, help="a file for every failure, as JSON lines")
    arguments = parser.parse_args()
    case = Case.from_json(arguments.case) if arguments.case else None
    checker = Checker(case.package if case else arguments.package)
    failures = Failures(checker, title=checker.package, out=arguments.out)
    print(f"seed {arguments.seed}", flush=True)
    if case:
        failures.add(case)
    elif arguments.singles:
        found = list(dict.fromkeys(singles(arguments.package)))
        random.Random(arguments.seed).shuffle(found)
        for case in found[: arguments.cases]:
            failures.add(case)
    else:
        drawn(
            cases(arguments.package),
            count=arguments.cases,
            seed=arguments.seed,
            act=failures.add,
        )
    print(failures.table(shrink=arguments.shrink))
    checker.close()


if __name__ == "__main__":
    _main()
