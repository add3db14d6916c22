"""The differences between Keras 3 and tf_keras."""
