"""Complete pipelines and their runners."""
