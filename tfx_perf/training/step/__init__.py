"""One training step: compiled, sliced, repeated."""
