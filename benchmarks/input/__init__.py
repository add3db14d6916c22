"""Input pipelines: InputTuner's choice compared with TFXIO's default and hand-written tf.data."""
