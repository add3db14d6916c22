"""The model: its features, their preprocessing, its training."""
