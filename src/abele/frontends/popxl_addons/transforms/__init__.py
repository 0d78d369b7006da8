"""``popxl_addons.transforms``: graphs made of graphs."""

from abele.frontends.popxl_addons.transforms.autodiff import autodiff, autodiff_with_accumulation
from abele.frontends.popxl_addons.transforms.available_memory import set_available_memory_proportion_by_ipu
from abele.frontends.popxl_addons.transforms.batch_serialisation import (
    BatchSerialResult,
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from abele.frontends.popxl_addons.transforms.pipelining import pipelined_execution
from abele.frontends.popxl_addons.transforms.recompute import recompute_graph
from abele.frontends.popxl_addons.transforms.repeat_graph import repeat_graph

__all__ = [
    "BatchSerialResult",
    "RemoteHandle",
    "autodiff",
    "autodiff_with_accumulation",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "pipelined_execution",
    "recompute_graph",
    "repeat_graph",
    "set_available_memory_proportion_by_ipu",
]
