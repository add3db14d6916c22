"""Several workers: their steps under Keras' `fit` against those of the plan they get."""
