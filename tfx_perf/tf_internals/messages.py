"""Messages (protocol buffers) of XLA and of the profiler, which have no public names."""

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

__all__ = ["hlo_pb2", "xla_data_pb2", "xplane_pb2"]
