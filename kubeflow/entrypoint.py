"""The process in a container of Kubeflow Pipelines: `python -m tfx_perf.kubeflow.entrypoint`.

The arguments are those that `compile_pipeline` writes; the launcher fills in `{{$}}`.
"""

import argparse
import json
import logging
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from tfx_perf.core import console, errors
from tfx_perf.kubeflow import ui
from tfx_perf.kubeflow.staging import Invocation, Staging


def run(argv: Sequence[str], *, staging_root: pathlib.Path = pathlib.Path("/")) -> None:
    """Runs one task and writes what the launcher reads; raises as the executor does."""
    arguments, beam_arguments = _parser().parse_known_args(argv)
    inputs_spec = json.loads(arguments.json_serialized_inputs_spec_args)
    staging = Staging(staging_root)
    invocation = Invocation(
        json.loads(arguments.json_serialized_invocation_args), inputs_spec, staging
    )
    # Imported here: these imports take most of the start of the process.
    from tfx_perf.components import early_imports
    from tfx_perf.isolate import forks
    from tfx_perf.kubeflow import task_run

    forks.note_imports()
    early_imports.begin(arguments.executor_class_path)
    with tempfile.TemporaryDirectory(prefix="tfx-task-") as folder:
        task = task_run.TaskRun(
            invocation.executor_input(pathlib.Path(folder, "driver.json")),
            inputs_spec,
            arguments,
            beam_arguments=beam_arguments,
        )
        outputs, described = task.run(invocation.run_id(arguments.pipeline_name))
    for name, target in invocation.ui_outputs.items():
        source = outputs.get(ui.shown_by(name))
        if source:  # otherwise it is the launcher's own, e.g. executor-logs
            ui.write(target["type"]["schemaTitle"], source[0], target)
            artifact = {key: target[key] for key in ("name", "uri", "metadata") if key in target}
            described["artifacts"][name] = {"artifacts": [artifact]}
    path = pathlib.Path(invocation.output_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(staging.restored(described), allow_nan=False), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tfx_perf.kubeflow.entrypoint", allow_abbrev=False)
    parser.add_argument("--executor_class_path", required=True)
    parser.add_argument("--json_serialized_invocation_args", required=True)
    parser.add_argument("--json_serialized_inputs_spec_args", required=True)
    parser.add_argument("--pipeline_name", required=True)
    parser.add_argument("--node_id", required=True)
    parser.add_argument("--example_gen_driver", action="store_true")
    return parser


def main() -> None:
    """Runs the task of the command line and ends the process."""
    logging.basicConfig(level=logging.INFO)
    try:
        run(sys.argv[1:])
    except errors.UserError as error:
        console.tell_error(str(error), program="tfx-perf")
        sys.exit(console.EXIT_USER_ERROR)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of Beam and TensorFlow that run while Python ends must not turn a finished task into
    # a failed one ("pure virtual method called").
    os._exit(0)


if __name__ == "__main__":
    main()
