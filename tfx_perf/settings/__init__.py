"""The sections of `PerfConfig` that are more than a few values."""
