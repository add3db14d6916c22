"""What a running training serves to Prometheus; see docs/monitoring.md."""
