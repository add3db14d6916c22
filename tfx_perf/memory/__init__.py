"""Where a training step's memory goes, and how large a batch can get."""
