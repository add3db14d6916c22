"""Several workers: their steps under plain `fit` against those of the plan they get."""
