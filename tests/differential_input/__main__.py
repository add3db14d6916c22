"""Draws cases, serves each with the candidates, and prints what failed, by signature.

For example: `python -m tests.differential_input --cases 200 --seed 7 --candidate columns`.
"""

from tests.fuzzing import failures
from tests.fuzzing.drawing import drawn

from .cases import Case
from .checking import Checker
from .memory import MemoryChecker
from .memory import cases as memory_cases
from .strategies import BASES, cases


def _main() -> None:
    parser = failures.parser(description=__doc__, prog="python -m tests.differential_input")
    parser.add_argument("--candidate", choices=BASES, help="only this one, with autotune on or off")
    parser.add_argument("--memory", action="store_true", help="measure it, each in a process")
    arguments = parser.parse_args()
    checker = MemoryChecker() if arguments.memory else Checker()
    title = arguments.candidate or "all candidates"
    found = failures.Failures(checker, title=title, out=arguments.out)
    print(f"seed {arguments.seed}", flush=True)

    def add(drawn_cases: list[Case]) -> None:
        found.add(case for case in drawn_cases if arguments.candidate in (None, case.base))

    if arguments.case:
        found.add(Case.from_json(arguments.case))
    else:
        strategy = memory_cases() if arguments.memory else cases(wide=True)
        drawn(strategy, count=arguments.cases, seed=arguments.seed, act=add)
    print(found.table(shrink=arguments.shrink))
    if arguments.memory:
        print(checker.table())
    checker.close()


if __name__ == "__main__":
    _main()
