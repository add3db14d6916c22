"""Training with parameter servers: one process coordinates, others compute and hold the weights."""
