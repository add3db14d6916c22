"""Small things about `tf.data` that more than one floor needs."""
