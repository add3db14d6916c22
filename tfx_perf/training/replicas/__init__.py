"""Which replicas and workers train together, and how they communicate."""
