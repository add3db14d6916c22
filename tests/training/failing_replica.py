"""A replica fails while the other one waits for it in a sum; then both sum again. Run as a script.

Prints the error of the first step and the sum of the second.
"""

import tensorflow as tf
from keras_api.replica_cases import strategy_of

_SECONDS = 2.0  # in which the other one comes to the sum


def main():
    strategy = strategy_of(2)

    def fails(seconds):
        end = tf.timestamp() + seconds
        turns = tf.while_loop(lambda _: tf.timestamp() < end, lambda turn: turn + 1, [0])
        with tf.control_dependencies([turns]):
            return tf.debugging.Assert(seconds == 0, ["out of memory, say"])

    def of_replica(seconds):
        context = tf.distribute.get_replica_context()
        late = tf.get_static_value(context.replica_id_in_sync_group) == 1
        with tf.control_dependencies([fails(seconds)] if late else []):
            return context.all_reduce("SUM", tf.identity(1.0))

    step = tf.function(lambda seconds: strategy.run(of_replica, (seconds,)), autograph=False)
    try:
        step(tf.constant(_SECONDS, tf.float64))
    except tf.errors.InvalidArgumentError as error:
        print(type(error).__name__)
    found = step(tf.constant(0.0, tf.float64))
    print(strategy.experimental_local_results(found)[0].numpy())


if __name__ == "__main__":
    main()
