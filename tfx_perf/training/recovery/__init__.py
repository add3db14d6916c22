"""Trainings that continue after a kill, NaN or an out-of-memory error."""
