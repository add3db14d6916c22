"""Serves a running training's metrics to Prometheus; see docs/reliability.md."""
