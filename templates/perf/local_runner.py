"""Runs the pipeline on this machine, e.g. with `--set train_steps=200 --label again`."""

import argparse

from tfx_perf.config import PerfConfig
from tfx_perf.core import console, errors

from pipeline import configs


def main() -> None:
    """Runs the pipeline; a new label trains again even if nothing has changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE")
    parser.add_argument("--label", help="train again although nothing has changed")
    arguments = parser.parse_args()
    database = configs.OUTPUT / "metadata.sqlite"
    # The output of TFX, TensorFlow and others goes to the log, also while they are imported.
    with console.script(configs.OUTPUT / "run.log") as terminal:
        PerfConfig.from_yaml(configs.SETTINGS)  # reports its errors before TFX is imported
        from tfx.orchestration import metadata

        from tfx_perf.pipelines import local_runner, progress

        from pipeline import definition

        pipeline = definition.create(
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(database)),
            run_label=arguments.label,
        )
        with progress.shown(terminal):
            local_runner.run(pipeline, _parameters(arguments.set))
    print(f"Figures: tfx-perf history {database}")


def _parameters(given: list[str]) -> dict[str, str]:
    for item in given:
        if "=" not in item:
            raise errors.UserError(f"Expected PARAMETER=VALUE. Received: --set {item}.")
    return dict(item.split("=", 1) for item in given)


if __name__ == "__main__":
    main()
