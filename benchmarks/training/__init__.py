"""OptimizedTrainer against TFX's stock Trainer, and its choice of plan against every plan."""
