"""Runs on record in ML Metadata."""
