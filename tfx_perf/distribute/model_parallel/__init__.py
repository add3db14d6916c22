"""Layers on several devices of one process: which, and that they are."""
