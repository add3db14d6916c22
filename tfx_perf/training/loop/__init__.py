"""One `fit` with a plan, or with several in turns."""
