"""Training modules as users of TFX write them; they know nothing of tfx-perf."""
