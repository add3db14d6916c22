"""Model parallelism in one process: which layers are on which device, and that they are."""
