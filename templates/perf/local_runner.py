"""Runs the pipeline on this machine, e.g. with `--set train_steps=200 --label again`."""

import argparse
import os
import warnings


def main() -> None:
    """Runs it; a new label trains anew though nothing has changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE")
    parser.add_argument("--label", help="train anew though nothing has changed")
    arguments = parser.parse_args()
    # Imported after this, since it is then that TensorFlow and others begin to talk.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    warnings.simplefilter("ignore")

    from tfx.orchestration import metadata

    from tfx_perf.pipelines import local_runner, progress

    from pipeline import configs, definition

    database = configs.OUTPUT / "metadata.sqlite"
    pipeline = definition.create(
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(database)),
        run_label=arguments.label,
    )
    log = configs.OUTPUT / "run.log"
    with progress.shown(log):
        local_runner.run(pipeline, dict(item.split("=", 1) for item in arguments.set))
    print(f"Log: {log}\nFigures: tfx-perf history {database}")


if __name__ == "__main__":
    main()
