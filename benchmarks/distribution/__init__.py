"""Several workers: their step times under Keras' `fit` compared with those of the plan."""
