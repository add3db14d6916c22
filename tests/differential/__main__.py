"""Draws cases, runs them, and prints what failed, by signature.

For example: `python -m tests.differential --cases 200 --seed 7 --package keras`.
"""

import random

from tests.fuzzing import failures
from tests.fuzzing.drawing import drawn

from .cases import Case
from .checking import Checker
from .strategies import cases, singles


def _main() -> None:
    parser = failures.parser(description=__doc__, prog="python -m tests.differential")
    parser.add_argument("--package", choices=("keras", "tf_keras"), default="keras")
    parser.add_argument("--singles", action="store_true", help="one unusual thing in each case")
    arguments = parser.parse_args()
    case = Case.from_json(arguments.case) if arguments.case else None
    checker = Checker(case.package if case else arguments.package)
    found = failures.Failures(checker, title=checker.package, out=arguments.out)
    print(f"seed {arguments.seed}", flush=True)
    if case:
        found.add(case)
    elif arguments.singles:
        several = list(dict.fromkeys(singles(arguments.package)))
        random.Random(arguments.seed).shuffle(several)
        found.add(several[: arguments.cases])
    else:
        strategy = cases(arguments.package)
        drawn(strategy, count=arguments.cases, seed=arguments.seed, act=found.add)
    print(found.table(shrink=arguments.shrink))
    checker.close()


if __name__ == "__main__":
    _main()
