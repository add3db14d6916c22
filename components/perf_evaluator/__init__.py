"""PerfEvaluator: blesses a model that is fast and small enough, refuses one that is not."""
