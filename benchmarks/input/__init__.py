"""Input pipelines: InputTuner's choice against TFXIO's default and hand-written tf.data."""
