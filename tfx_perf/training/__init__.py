"""Trains a Keras model with the fastest plan that was measured."""
