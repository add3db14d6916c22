"""XLA's results for a training step: HLO, FLOPs, fusions, programs compiled ahead of time."""
