"""TFX's command line, `tfx`, with what is broken in it repaired while it starts."""
