"""The pipeline: its settings, its parts, and how this project puts them together."""
