"""What stands around the steps while `fit` runs."""
