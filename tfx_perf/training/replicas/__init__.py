"""Which replicas and workers train together, and what they tell each other."""
