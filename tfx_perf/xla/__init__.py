"""What XLA makes of a training step: HLO, FLOPs, fusions, programs compiled ahead."""
