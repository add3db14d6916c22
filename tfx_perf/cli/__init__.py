"""The `tfx-perf` command."""
