"""The settings to change first: names, folders, steps."""

import os
import pathlib

# Runs with the same name share a baseline in the gate.
PIPELINE_NAME = "{{PIPELINE_NAME}}"

PROJECT = pathlib.Path(__file__).resolve().parents[1]

# A folder with CSV files, or with TFRecord files of tf.Example.
DATA_PATH = os.environ.get("DATA_PATH", str(PROJECT / "data"))
DATA_FORMAT = os.environ.get("DATA_FORMAT", "csv")  # or tfrecord

# Artifacts, ML Metadata and pushed models of runs on this machine and under Airflow.
OUTPUT = pathlib.Path(os.environ.get("OUTPUT", PROJECT / "output"))

TRAIN_STEPS = 1000
EVAL_STEPS = 15

# Evaluator does not bless a model below this accuracy.
MIN_ACCURACY = 0.7

# Settings of the four components of tfx-perf.
SETTINGS = PROJECT / "perf.yaml"

# Options of Beam for the components that read all of the data, e.g. "--runner=FlinkRunner ...".
BEAM_PIPELINE_ARGS = os.environ.get("BEAM_PIPELINE_ARGS", "").split()
