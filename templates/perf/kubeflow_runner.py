"""Compiles the pipeline for Kubeflow Pipelines."""

import os

from tfx_perf.core import console

with console.libraries():  # TensorFlow and others log a lot while they are imported
    from tfx_perf import kubeflow
    from tfx_perf.kubeflow import notes

    from pipeline import configs, definition

# Kubeflow Pipelines allow only lowercase letters, digits and -.
NAME = configs.PIPELINE_NAME.lower().replace("_", "-")

# The image built from the Dockerfile, and the folder of the data in it or in an object store.
IMAGE = os.environ.get("IMAGE", f"{NAME}:latest")
DATA_PATH = os.environ.get("KUBEFLOW_DATA_PATH", "/app/data")

# Artifacts; Pusher puts the model there too, as the artifact `pushed_model`.
PIPELINE_ROOT = os.environ.get("PIPELINE_ROOT", "minio://mlpipeline/v2/artifacts")
SERVING_MODEL_DIR = os.environ.get("SERVING_MODEL_DIR", "/tmp/serving_model")

# Folder for the ledger of blessed runs, for which Kubeflow has no other place.
BASELINE_URI = os.environ.get("BASELINE_URI")

# CPU, memory, accelerators, secrets, per-node settings: see KubeflowSettings.
SETTINGS = kubeflow.KubeflowSettings(image=IMAGE)


def main() -> None:
    """Writes the pipeline as YAML, and prints notes on anything that a run will lack."""
    pipeline = definition.create(
        pipeline_name=NAME,
        pipeline_root=PIPELINE_ROOT,
        data_path=DATA_PATH,
        serving_model_dir=SERVING_MODEL_DIR,
        baseline_uri=BASELINE_URI,
    )
    path = kubeflow.compile_pipeline(
        pipeline, output=configs.OUTPUT / f"{NAME}.yaml", settings=SETTINGS
    )
    for note in notes.notes(pipeline, SETTINGS):
        print(f"Note: {note}")
    print(f"Compiled for Kubeflow: {path}")


if __name__ == "__main__":
    with console.script():
        main()
