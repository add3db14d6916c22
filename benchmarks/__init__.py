"""Benchmarks on real workloads; run from the root of the repository, not installed."""
