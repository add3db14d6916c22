"""What XLA makes of a training step: HLO, FLOPs, fusions, products, programs compiled ahead."""
