"""Measures memory, communication and garbage collection along a training."""
