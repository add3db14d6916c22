"""What only several replicas, workers or devices need; imported where there are several."""
