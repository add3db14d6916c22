"""TensorFlow's private parts exist and do what `tfx_perf.tf_internals` relies on."""

import inspect
import pathlib
import random
import subprocess
import sys
import types

import keras
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.autograph.impl import conversion
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    multi_worker_util,
    parameter_server_strategy_v2,
)
from tensorflow.python.eager import context
from tensorflow.python.tools import saved_model_cli

from tests.contracts import contract
from tfx_perf.distribute.model_parallel import divided_tables, placing
from tfx_perf.tf_internals import (
    ancestry,
    autograph,
    built_optimizer,
    clusters,
    devices,
    graphs,
    iterators,
    messages,
    random_state,
)


def numbers():
    return tf.data.Dataset.range(6)


@contract("Diagnosis, trials and advice know nothing of what is in the user's data.")
def test_a_datasets_graph_is_written_down():
    graph = ancestry.graph_of(numbers().map(lambda x: x + 1))
    assert {"RangeDataset", "MapDataset"} <= {node.op for node in graph.node}


@contract("InputTuner does not find the factory's dataset in fit's data, nor the stages in it.")
def test_a_dataset_tells_what_it_is_made_of():
    one, other = numbers(), numbers()
    joined = one.concatenate(other).batch(2)
    assert ancestry.inputs(joined.prefetch(1)) == [joined]
    assert {one, other, joined} <= set(ancestry.lineage(joined.prefetch(1)))


@contract("A resumed training may take another order of the data for the saved one.")
@pytest.mark.parametrize(("again", "count"), [(None, 1), (True, 1), (False, 0)])
def test_a_shuffle_tells_whether_it_draws_new_seeds(again, count):
    data = numbers().shuffle(3, reshuffle_each_iteration=again).repeat(2)
    assert ancestry.reshuffle_count(data) == count
    assert ancestry.reshuffle_count(ancestry.independent(data)) == count


@contract("A training that goes back would read unseeded data again, some rows twice.")
def test_a_shuffle_tells_whether_it_has_a_seed():
    tf.random.set_seed(None)
    assert ancestry.is_unseeded(ancestry.independent(numbers().shuffle(3).batch(2)))
    assert not ancestry.is_unseeded(numbers().shuffle(3, seed=0))


@contract("A state of many GiB may be looked at that is not to be kept in memory.")
def test_buffers_tell_how_much_they_hold():
    pairs = tf.data.Dataset.range(10).map(lambda n: (n, tf.zeros([5])))
    assert ancestry.held_bytes(pairs.shuffle(4).batch(2)) == 4 * (8 + 20)
    assert ancestry.held_bytes(ancestry.independent(pairs.shuffle(40))) == 10 * (8 + 20)
    assert ancestry.held_bytes(pairs.repeat().cache()) > 2**40
    assert ancestry.held_bytes(numbers().map(tf.strings.as_string).shuffle(2)) > 2**16


@contract("The batch size of data of unknown shape is not found, and its memory not predicted.")
@pytest.mark.parametrize("options", [{}, {"num_parallel_calls": 2}], ids=["plain", "parallel"])
def test_a_batch_tells_its_size(options):
    assert ancestry.batch_size(numbers().batch(3, **options).prefetch(1)) == 3
    assert ancestry.batch_size(numbers()) is None


@contract("To save the position in the data ends a cache that is being written.")
def test_a_cache_tells_its_file(tmp_path):
    assert ancestry.caches_in_files(numbers().cache(str(tmp_path / "cache")).batch(2))
    assert not ancestry.caches_in_files(numbers().cache().batch(2))


@contract("A training is resumed although its data are made in another way, or never resumed.")
def test_the_ancestors_of_a_dataset_tell_sizes_and_functions():
    def own(x):
        return x + 1

    data = numbers().shuffle(5).map(own, num_parallel_calls=2).batch(3).repeat(2).prefetch(1)
    repeated, batched, mapped, shuffled, source = ancestry.ancestors(data)
    assert [each.sizes for each in (repeated, batched, shuffled)] == [[2], [3], [5]]
    assert mapped.functions == [own]
    assert (mapped.name, source.name) == ("_MapDataset", "_RangeDataset")


@contract("Tracing a tf_keras model takes many times as long, or leaves user code unconverted.")
def test_autograph_can_skip_tf_keras():
    call, train_step = tf_keras.layers.Dense.call, tf_keras.Model.train_step
    with autograph.libraries_unconverted():
        assert conversion.is_allowlisted(call)
        assert not conversion.is_allowlisted(train_step)


@contract("Children that are forks leave files in the folder for temporary ones.")
def test_the_files_of_converted_code_are_known_by_their_names():
    def first(x):
        return x + 1

    def second(x):
        return x + 2

    def file_of(converted):
        return pathlib.Path(converted.__code__.co_filename)

    before = file_of(tf.autograph.to_graph(first))
    with autograph.removed_afterwards():
        meanwhile = file_of(tf.autograph.to_graph(second))
        assert meanwhile.exists()
    assert before.exists() and not meanwhile.exists()


@contract("Saved positions in the data are lost: nobody sees which iterators fit makes.")
def test_a_dataset_may_have_iterators_of_its_own_kind():
    known = iterators.FitIterators()
    data = known.over(numbers())
    assert data.element_spec == numbers().element_spec
    one, other = iter(data), iter(data)
    assert (known.number_of(one), known.number_of(other)) == (0, 1)
    assert int(next(other)) == 0


@contract("The end of an iterator holds up fit for as long as the iterator was in use.")
def test_an_iterator_keeps_its_resource_in_an_attribute():
    iterator = iter(iterators.unawaited(numbers()))
    assert "_iterator_resource" in vars(iterator)
    assert iterator._iterator_resource.dtype == tf.resource
    assert [int(x) for x in iterator] == list(range(6))


@contract("The first batch is not noted, and no position in the data is saved.")
def test_a_datasets_own_iterator_is_told_from_a_strategys():
    assert iterators.is_of_dataset(iter(numbers()))
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    distributed = strategy.experimental_distribute_dataset(numbers().batch(2))
    assert not iterators.is_of_dataset(iter(distributed))


@contract("An interrupted training reads its data again from their beginning.")
def test_the_state_of_an_iterator_is_saved_and_put_back():
    iterator, other = iter(numbers()), iter(numbers())
    next(iterator), next(iterator)
    iterators.restore(other, iterators.saved(iterator))
    assert int(next(other)) == 2


@contract("Steps that XLA compiles in one call get no batches.")
def test_an_iterator_hands_out_elements_stacked():
    data = tf.data.Dataset.range(5).map(lambda number: (number, tf.strings.as_string(number)))
    reader, iterator = iterators.StackedReader(data.element_spec), iter(data)
    assert [part.numpy() for part in reader.read_singly(iterator, 1)[1][0]] == [0, b"0"]
    stacked, elements = reader.read(iterator, 2)
    assert [part.numpy().tolist() for part in stacked] == [[1, 2], [b"1", b"2"]]
    assert not elements
    stacked, elements = reader.read(iterator, 3)
    assert not stacked
    assert [int(number) for number, _ in elements] == [3, 4]
    assert reader.read(iterator, 1) == ([], [])
    assert reader.read_singly(iterator, 1) == ([], [])


@contract("Batches are lost where their sizes differ.")
def test_no_element_is_lost_where_shapes_differ():
    data = tf.data.Dataset.range(7).batch(3)
    reader, iterator = iterators.StackedReader(data.element_spec), iter(data)
    stacked, elements = reader.read(iterator, 3)
    assert not stacked
    assert [element[0].numpy().tolist() for element in elements] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("is_interrupted", [False, True])
@contract("Batches of a call that failed are trained later.")
def test_an_error_of_the_data_is_raised_and_leaves_nothing(is_interrupted, monkeypatch):
    data = tf.data.Dataset.range(8).map(lambda number: 12 // (number - 2))
    reader, iterator = iterators.StackedReader(data.element_spec), iter(data)
    if is_interrupted:
        monkeypatch.setattr(reader, "_staged", list)
    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        reader.read(iterator, 4)
    stacked, _ = reader.read(iterator, 4)
    assert stacked[0].numpy().tolist() == [12, 6, 4, 3]


@contract("A call waits forever for data that need the only thread of TensorFlow's pool.")
def test_data_with_functions_are_read_by_one_thread():
    code = """
import tensorflow as tf
from tfx_perf.tf_internals import iterators
tf.config.threading.set_inter_op_parallelism_threads(1)
def plus(number):
    return tf.numpy_function(lambda each: each + 1, [number], tf.int64)
data = tf.data.Dataset.range(100).map(plus, num_parallel_calls=2).prefetch(2)
data = data.map(lambda number: tf.ensure_shape(number, []))
reader = iterators.StackedReader(data.element_spec)
iterator = iter(data)
for _ in range(3):
    (numbers,), _ = reader.read(iterator, 30)
print(int(numbers[-1]))
del iterator  # TensorFlow waits at exit, often forever, for a thread of it that needs Python
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert printed.stdout.strip() == "90"


@contract("Every epoch traces the reading again.")
def test_iterators_share_a_trace():
    data = tf.data.Dataset.range(4)
    reader = iterators.StackedReader(data.element_spec)
    for _ in range(3):
        reader.read(iter(data), 2)
    assert reader._function.experimental_get_tracing_count() == 1


@contract("With a global seed, a tf.data service repeats one order.")
def test_the_global_seed_is_known():
    assert random_state.global_seed() is None
    tf.random.set_seed(3)
    assert random_state.global_seed() == 3


@contract("A resumed training draws other seeds than an uninterrupted one.")
def test_the_generator_of_operations_seeds_can_be_put_back():
    tf.random.set_seed(3)
    generator = random_state.operation_seeds()
    assert isinstance(generator, random.Random)
    before = generator.getstate()
    seeds = tf.compat.v1.get_seed(None)  # as each operation asks for them
    assert tf.compat.v1.get_seed(None) != seeds
    generator.setstate(before)
    assert tf.compat.v1.get_seed(None) == seeds


@contract("Tuning, or a training that goes back, changes what is drawn outside of graphs.")
def test_random_numbers_drawn_outside_of_graphs_can_be_drawn_again():
    def drawn():
        return [float(tf.random.uniform([])) for _ in range(3)]

    tf.random.set_seed(3)
    before = random_state.operation_seeds().getstate()
    expected = drawn()
    random_state.restore(random_state.operation_seeds(), before)
    with random_state.other_operation_seeds():
        assert drawn() != expected
        tf.random.set_seed(4)
        drawn()
    assert random_state.global_seed() == 3
    assert drawn() == expected


@contract("The state of TensorFlow's global generator is not saved, or one is made.")
def test_the_global_generator_is_found_if_it_was_asked_for(monkeypatch):
    module = inspect.getmodule(tf.random.get_global_generator)
    monkeypatch.setattr(module, "global_generator", None)
    assert random_state.global_generator_state() is None
    generator = tf.random.get_global_generator()
    assert random_state.global_generator_state() is generator.state


@contract("Memory is taken for tensors' where there is none, or devices are opened too early.")
def test_whether_a_device_is_open_is_known():
    assert context.Context()._initialized is False
    tf.constant(1) + 1
    assert devices.are_open()


@contract("On a GPU nobody knows how much memory a step may take.")
def test_the_devices_tell_how_much_their_allocators_may_take():
    assert devices.allocator_limit_bytes("CPU:0") > 0


@contract("OptimizedTrainer tries oneDNN where it is on, or does not where it is off.")
def test_the_build_tells_whether_onednn_is_on():
    assert isinstance(devices.uses_onednn(), bool)


@contract("Activations are not computed again: recompute saves no memory.")
def test_an_operation_reads_another_tensor_after_tracing():
    @tf.function
    def function(x):
        total = tf.square(x)
        graphs.replace_input(total.op, 0, tf.constant(3.0))
        return tf.identity(total)

    assert float(function(tf.constant(2.0))) == 9


@contract("With XLA, recompute saves no memory.")
def test_xla_passes_tensors_through_a_barrier():
    @tf.function(jit_compile=True)
    def function(x):
        first, second = graphs.behind_barrier([x, x + 1])
        return first + second

    assert int(function(tf.constant(2))) == 5
    assert b"opt-barrier" in function.experimental_get_compiler_ir(tf.constant(2))(
        stage="hlo_serialized"
    )


@contract("Models cannot be compiled ahead of time.")
def test_variables_of_a_function_become_constants():
    variable = tf.Variable(3.0)

    @tf.function
    def function(**inputs):
        return {"product": inputs["b"] * variable, "difference": inputs["a"] - inputs["b"]}

    specs = {name: tf.TensorSpec([], tf.float32, name=name) for name in ("b", "a")}
    constant = graphs.with_constants(function.get_concrete_function(**specs))
    variable.assign(0.0)
    results = tf.nest.flatten(constant(tf.constant(5.0), tf.constant(1.0)))
    assert [float(result) for result in results] == [4, 3]


@contract("Models cannot be compiled ahead of time: their signatures are not found.")
def test_a_saved_models_signatures_are_read_without_loading_it(tmp_path):
    module = tf.Module()
    function = tf.function(lambda x: {"y": x}).get_concrete_function(
        x=tf.TensorSpec([None], tf.string)
    )
    tf.saved_model.save(module, str(tmp_path), signatures={"own": function})
    found = graphs.signatures(str(tmp_path))["own"]
    assert found.inputs["x"].dtype == tf.string.as_datatype_enum


@contract("Models cannot be compiled ahead of time: saved_model_cli takes other arguments.")
def test_saved_model_cli_compiles_ahead_of_time():
    assert saved_model_cli.__name__ == graphs.SAVED_MODEL_CLI
    folders = ["--dir", "in", "--output_prefix", "out"]
    of_model = ["--tag_set", "serve", "--signature_def_key", "own", "--cpp_class", "a::B"]
    arguments = saved_model_cli.create_parser().parse_args(["aot_compile_cpu", *folders, *of_model])
    assert arguments.func is saved_model_cli.aot_compile_cpu


@contract("FLOPs, fusions and memory are not read from what XLA compiled.")
def test_messages_of_xla_have_the_fields_that_are_read():
    @tf.function(jit_compile=True)
    def function(x):
        return x @ x

    serialized = function.experimental_get_compiler_ir(tf.ones([2, 2]))(stage="hlo_serialized")
    module = messages.hlo_pb2.HloModuleProto.FromString(serialized)
    (dot,) = (
        item
        for computation in module.computations
        for item in computation.instructions
        if item.opcode == "dot"
    )
    assert list(dot.dot_dimension_numbers.lhs_contracting_dimensions) == [1]
    assert dot.shape.element_type == messages.xla_data_pb2.F32
    assert list(dot.shape.dimensions) == [2, 2]
    fields = {
        messages.hlo_pb2.HloInstructionProto: {
            "called_computation_ids", "convolution_dimension_numbers", "id", "literal",
            "metadata", "operand_ids", "parameter_number", "tuple_index",
        },
        messages.hlo_pb2.BufferAllocationProto: {
            "index", "size", "maybe_live_out", "is_entry_computation_parameter",
        },
    }  # fmt: skip
    for message, names in fields.items():
        assert names <= set(message.DESCRIPTOR.fields_by_name)


@contract("What autotune chose, and fragmentation, are not read from the profiler's traces.")
def test_messages_of_the_profiler_have_the_fields_that_are_read():
    space = messages.xplane_pb2.XSpace()
    plane = space.planes.add()
    plane.event_metadata[1].name, plane.stat_metadata[2].name = "Iterator::Map", "parallelism"
    plane.lines.add().events.add(metadata_id=1).stats.add(metadata_id=2, int64_value=4)
    (read,) = messages.xplane_pb2.XSpace.FromString(space.SerializeToString()).planes
    ((stat,),) = ([*event.stats] for line in read.lines for event in line.events)
    assert getattr(stat, stat.WhichOneof("value")) == 4
    assert "ref_value" in set(stat.DESCRIPTOR.fields_by_name)


@contract("Workers on Kubernetes do not connect before run_fn has made a strategy.")
def test_a_workers_server_can_be_started_before_its_strategy():
    strategy = collective_all_reduce_strategy.CollectiveAllReduceExtended
    assert strategy._enable_check_health is True
    assert '"_std_server_started", False' in inspect.getsource(strategy)
    job = collective_all_reduce_strategy.coordination_config_pb2.CoordinatedJob
    assert job(name="worker", num_tasks=2).num_tasks == 2
    configure = inspect.signature(context.Context.configure_coordination_service)
    assert configure.parameters.keys() >= {
        "service_type", "service_leader", "coordinated_jobs", "heartbeat_timeout_in_ms",
    }  # fmt: skip
    cluster = tf.train.ClusterSpec({"chief": ["a:1"], "worker": ["b:2"]})
    assert multi_worker_util.coordination_leader(cluster) == "/job:chief/replica:0/task:0"


@contract("OptimizedTrainer makes no strategy for parameter servers, or a module a second one.")
def test_a_strategy_with_parameter_servers_is_made_once():
    kind = tf.distribute.ParameterServerStrategy
    assert "self._cluster_resolver = cluster_resolver" in inspect.getsource(kind.__init__)
    strategy = object.__new__(kind)
    own = inspect.getsource(parameter_server_strategy_v2.ParameterServerStrategyV2Extended)
    assert "self._variable_partitioner(" in own  # each time that a variable is made
    strategy._extended = types.SimpleNamespace()
    made = kind.__init__
    with clusters.made_once(strategy):
        assert kind(None, variable_partitioner="the module's") is strategy
    assert strategy.extended._variable_partitioner == "the module's"
    assert (kind.__init__, kind.__new__) == (made, object.__new__)


@contract("Layers that are put on several devices stay in the host's memory, or are not trained.")
def test_a_variable_may_be_elsewhere_for_a_while():
    variable = tf.Variable([1.0, 2.0])
    double = tf.function(lambda: variable.assign(2 * variable))
    handle = variable.handle
    with placing.moved({"CPU:0": [variable]}):
        assert variable.handle is not handle
        double()
        variable.assign_add([1.0, 1.0])
        assert variable.numpy().tolist() == [3.0, 5.0]
    assert variable.handle is handle
    assert variable.numpy().tolist() == [3.0, 5.0]


@contract("An embedding that no device can hold cannot be trained.")
def test_rows_of_parts_are_looked_up_and_read_as_one():
    parts = [tf.Variable([[0.0], [1.0]]), tf.Variable([[2.0]])]
    rows = divided_tables.of_parts(parts)
    assert tf.nn.embedding_lookup(rows, [2, 0, 1])[:, 0].numpy().tolist() == [2.0, 0.0, 1.0]
    assert tf.convert_to_tensor(rows)[:, 0].numpy().tolist() == [0.0, 1.0, 2.0]


@contract("Of layers that are put on several devices, most is computed on the first one.")
def test_operations_and_gradients_are_where_their_scope_is_or_what_they_read():
    first, second = (tf.Variable(tf.ones([2, 2])) for _ in range(2))
    strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")

    def step(x):
        with tf.GradientTape() as tape:
            with placing.scope(0):
                hidden = tf.matmul(x, first, name="low")
            with placing.scope(1):
                out = tf.matmul(hidden, second, name="high")
            loss = tf.reduce_sum(tf.square(out, name="loss"))
        gradients = tape.gradient(loss, [first, second])
        return loss, [tf.negative(each, name="update") for each in gradients]

    names = ["/device:CPU:0", "/device:CPU:1"]
    with placing.placed(strategy, names):
        traced = tf.function(lambda x: strategy.run(step, (x,)))
        graph = traced.get_concrete_function(tf.TensorSpec([4, 2])).graph
    device_of = {each.name: each.device for each in graph.get_operations()}
    for name, device, gradient_count in (("low", names[0], 1), ("high", names[1], 2)):
        products = [each for each in device_of if f"/{name}" in each and "MatMul" in each]
        products.append(f"on_device.{name == 'high':d}./{name}")
        assert {device_of[each] for each in products} == {device}
        assert sum("gradient_tape" in each for each in products) == gradient_count
    assert (device_of["loss"], device_of["update"], device_of["update_1"]) == (names[1], *names)


@contract("What reads a weight outside of its layer, a regularizer say, is on another device.")
def test_what_reads_a_variable_in_a_graph_is_where_it_is():
    variable = tf.Variable(tf.ones([2]))
    strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
    with placing.placed(strategy, []):
        inner = tf.function(lambda: tf.square(variable, name="norm"))
        outer = tf.function(lambda: strategy.run(inner))
        graph = outer.get_concrete_function().graph
        itself = tf.function(lambda: strategy.run(lambda: tf.square(variable, name="norm")))
        (norm,) = itself.get_concrete_function().graph.get_operation_by_name("norm").outputs
    (call,) = [each for each in graph.get_operations() if "PartitionedCall" in each.type]
    assert call.device == norm.device == variable.device


@contract("Trials of another precision fail where the module makes a strategy for each model.")
@pytest.mark.parametrize("is_scaling", [False, True])
def test_an_optimizer_of_tf_keras_tells_that_it_is_built(is_scaling):
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Dense(1)])
    optimizer = tf_keras.optimizers.SGD()
    scaling = tf_keras.mixed_precision.LossScaleOptimizer
    model.compile(scaling(optimizer) if is_scaling else optimizer, "mse")
    assert not built_optimizer._is_built(model.optimizer)
    built_optimizer.build_optimizer(model)
    assert built_optimizer._is_built(model.optimizer)


@contract("The first step of Keras 3 is traced twice.")
def test_a_step_whose_optimizer_is_built_is_traced_once():
    traced = []

    class Noted(keras.layers.Layer):
        def call(self, x):
            traced.append(x)
            return x

    model = keras.Sequential([keras.Input([1]), Noted(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([1, 1]), tf.ones([1, 1])))
    built_optimizer.build_before_trace(model)
    traced.clear()
    model.fit(data, verbose=0)
    assert len(traced) == 1
