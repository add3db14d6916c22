"""Measures memory, FLOPs, communication and hardware along a training."""
