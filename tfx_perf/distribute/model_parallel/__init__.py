"""Places the layers of a model on several devices of one process."""
