"""Trainings on several workers."""
