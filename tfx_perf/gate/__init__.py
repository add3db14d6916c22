"""Decides whether a run is fast and small enough to be pushed."""
