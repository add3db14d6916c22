"""Trainings that go on after a kill, NaN or out-of-memory."""
