"""Parameter servers: the coordinator hands out steps, serves their data and saves weights."""
