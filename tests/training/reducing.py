"""What two replicas have TensorFlow reduce; run as a script, which prints it as JSON.

Argument: settings of `distribution.collective`, as JSON.
"""

import json
import sys

import tensorflow as tf

from tfx_perf.settings.distribution import CollectiveSettings
from tfx_perf.training import collectives


def main(settings):
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, devices)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def of_replica():
        add = tf.distribute.get_replica_context().all_reduce
        return add("SUM", [tf.random.uniform([100]), tf.random.uniform([100])])

    with collectives.options(strategy, settings):
        function = tf.function(lambda: strategy.run(of_replica)).get_concrete_function()
    reductions = [op for op in function.graph.get_operations() if "CollectiveReduce" in op.type]
    said = {
        (op.get_attr("communication_hint").decode(), op.get_attr("timeout_seconds"))
        for op in reductions
    }
    print(json.dumps({"reductions": len(reductions), "said": sorted(said)}))


if __name__ == "__main__":
    main(CollectiveSettings.model_validate_json(sys.argv[1]))
