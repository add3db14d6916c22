"""Whether the input holds up training, and where its time goes."""
