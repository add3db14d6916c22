"""Compares OptimizedTrainer with TFX's stock Trainer, and its choice of plan with every plan."""
