"""The order of a graph's operations, and what depends on what."""

import heapq
from collections.abc import Iterator

import tensorflow as tf

SHAPES = {"Const", "Shape", "ShapeN", "Size", "Rank"}  # known to XLA when it compiles


def topological(operations: list[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields operations after what they depend on, else in the order they were made in.

    The gradient of a loop adds inputs to it that are made later.
    """
    index = {operation: at for at, operation in enumerate(operations)}
    readers: dict[tf.Operation, list[tf.Operation]] = {op: [] for op in operations}
    missing = {}
    for operation in operations:
        sources = _sources(operation)
        missing[operation] = len(sources)
        for source in sources:
            readers[source].append(operation)
    ready = [index[op] for op in operations if not missing[op]]
    while ready:
        operation = operations[heapq.heappop(ready)]
        yield operation
        for reader in readers[operation]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, index[reader])


def descendants(first: tf.Operation, order: list[tf.Operation]) -> set[tf.Operation]:
    """Returns the operation and all that depend on it; `order` is topological."""
    found = {first}
    for operation in order:
        if not found.isdisjoint(_sources(operation)):
            found.add(operation)
    return found


def static(order: list[tf.Operation]) -> set[tf.Operation]:
    """Returns what follows from constants and shapes; `order` is topological."""
    found: set[tf.Operation] = set()
    for operation in order:
        inputs = [tensor.op for tensor in operation.inputs]
        is_derived = inputs and not operation.op_def.is_stateful and found.issuperset(inputs)
        if operation.type in SHAPES or is_derived:
            found.add(operation)
    return found


def _sources(operation: tf.Operation) -> set[tf.Operation]:
    return {*(tensor.op for tensor in operation.inputs), *operation.control_inputs}
