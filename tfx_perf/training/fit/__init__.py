"""The code around the steps while `fit` runs."""
