"""Parts of TensorFlow that it calls private, each behind one module."""
