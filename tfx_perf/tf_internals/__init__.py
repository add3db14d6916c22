"""Access to private parts of TensorFlow, each behind one module."""
