"""The child's side of `child`: calls the function that it is asked to, and writes its result."""

import contextlib
import importlib
import json
import pathlib
import sys
import traceback

from tfx_perf import errors
from tfx_perf.components.processes import child_guard


def carry_out(request_path: str, response_path: str) -> int:
    """Carries out a request of `child.run_in_child`; returns the exit code for this process.

    Args:
        request_path: JSON with `target`, `arguments`, `is_expendable`: whether the kernel had
            better kill this process than its parent, and `generators`: the states of its random
            generators, null for those that it has.
        response_path: where the result goes, or the error.
    """
    request, code = json.loads(pathlib.Path(request_path).read_text()), 1
    if request["is_expendable"]:  # if memory runs out, it shall not be the parent's end
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    module, _, name = request["target"].partition(":")
    if request["generators"] is not None:
        from tfx_perf.training.recovery import generators

        generators.put_back(request["generators"])
    try:
        function = getattr(importlib.import_module(module), name)
        outcome, code = {"result": function(**request["arguments"])}, 0
    except errors.UserError as error:
        outcome = {"user_error": str(error)}
    except Exception as error:  # reported to the parent, whatever it is
        traceback.print_exc()
        outcome = {"error": errors.in_one_line(error), "may_pass": _may_pass(error)}
    # Complete or not there at all, even if the process is killed while it writes.
    draft = pathlib.Path(f"{response_path}.draft")
    draft.write_text(json.dumps(outcome))
    draft.rename(response_path)
    return code


def _may_pass(error: Exception) -> bool:
    """Returns whether an error is the machine's or another process's, more than the code's."""
    if isinstance(error, (OSError, MemoryError)):
        return True
    if "tensorflow" not in sys.modules:
        return False
    from tfx_perf.training import team

    return team.may_pass(error) or team.is_short_of_memory(error)


if __name__ == "__main__":
    child_guard.split(int(sys.argv[3]))
    sys.exit(carry_out(sys.argv[1], sys.argv[2]))
