"""Input pipelines: candidates, their measurement, the choice and its application."""
