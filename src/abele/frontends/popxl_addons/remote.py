"""Variables in streaming memory by name, and graphs that load and store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import Tensor, TensorSpec, ops
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.variable_factory import NamedVariableFactories, VariableFactory


class NamedRemoteBuffers(DotTree[Any]):
    """Remote buffers by the names of what they hold."""


def create_remote_buffer(
    spec: Tensor | TensorSpec | VariableFactory,
    entries: int = 1,
    replica_grouping: Any = None,
    shard_over: int | None = None,
) -> popxl.RemoteBuffer:
    """A new remote buffer for tensors like one.

    Args:
        spec: Tensor, spec or maker of variables.
        entries: Rows of the buffer.
        replica_grouping: Replicas that hold the same, for tensors that are sharded.
        shard_over: Number of replicas of a group that tensors are sharded over; None for whole tensors.
    """
    if shard_over is not None and shard_over > 1:
        grouping = replica_grouping if replica_grouping is not None else popxl.gcg().ir.replica_grouping()
        return popxl.replica_sharded_buffer(
            spec.shape, spec.dtype, replica_grouping=grouping, shard_over=shard_over, entries=entries
        )
    if not isinstance(spec, Tensor | TensorSpec | VariableFactory):
        raise GraphTypeError(f"a remote buffer is made for a tensor, a spec or a maker of variables, not {spec!r}")
    meta = tuple(getattr(spec, "meta_shape", ()) or ())
    made = popxl.remote_buffer(spec.shape, spec.dtype, entries)
    if meta:
        made.meta_shape = meta
    return made


def named_variable_buffers(
    factories: NamedVariableFactories,
    entries: int = 1,
    shard_over_dict: Mapping[str, int] | bool = True,
) -> NamedRemoteBuffers:
    """Remote buffers for variables of all names.

    Args:
        factories: Makers of the variables.
        entries: Rows of each buffer.
        shard_over_dict: True to shard all variables over the replicas that hold the same; False for whole variables;
            or numbers of replicas by name, where other names are whole.

    Raises:
        GraphArgumentError: A name that no variable has.
    """
    flat = factories.to_dict()
    shards = dict(shard_over_dict) if isinstance(shard_over_dict, Mapping) else {}
    unknown = [name for name in shards if name not in flat]
    if unknown:
        raise GraphArgumentError(f"there is no variable {unknown[0]!r}", because=f"there are {', '.join(flat)}")
    if shard_over_dict is True:
        shards = {name: fact.shard_over for name, fact in flat.items()}
    return NamedRemoteBuffers.from_dict({name: fact.buffer(entries, shards.get(name)) for name, fact in flat.items()})


def load_remote_graph(
    buffers: NamedRemoteBuffers, entries: int | None = None, use_io_tiles: bool = False
) -> tuple[GraphWithNamedArgs, list[str]]:
    """The graph that loads a row of all buffers, and the names of its outputs.

    ```python
    load, names = addons.load_remote_graph(buffers)
    layer = NamedTensors.pack(names, load.call(3))
    ```

    Args:
        buffers: Remote buffers.
        entries: Rows that they have at least; a row number is an input whatever their number is.
        use_io_tiles: No meaning here.
    """
    names, found = _checked("load_remote_graph", buffers, entries)
    made = popxl.gcg().ir.create_empty_graph("load_remote")
    with made, popxl.in_sequence():
        row = popxl.graph_input((), popxl.int32, "row")
        made.outputs[:] = [ops.remote_load(b, row, name) for name, b in zip(names, found, strict=True)]
    return GraphWithNamedArgs(made), names


def store_remote_graph(
    buffers: NamedRemoteBuffers, entries: int | None = None, use_io_tiles: bool = False
) -> GraphWithNamedArgs:
    """The graph that stores tensors of all names in a row of buffers: ``graph.bind(tensors).call(3)``.

    Args:
        buffers: Remote buffers.
        entries: Rows that they have at least.
        use_io_tiles: No meaning here.
    """
    names, found = _checked("store_remote_graph", buffers, entries)
    made, args = popxl.gcg().ir.create_empty_graph("store_remote"), NamedTensors()
    with made, popxl.in_sequence():
        row = popxl.graph_input((), popxl.int32, "row")
        for name, buffer in zip(names, found, strict=True):
            tensor = popxl.graph_input(buffer.tensor_shape, buffer.tensor_dtype, name, meta_shape=buffer.meta_shape)
            ops.remote_store(buffer, row, tensor)
            args.insert(name, tensor)
    return GraphWithNamedArgs(made, args)


def load_remote(buffers: NamedRemoteBuffers, row: Any = 0) -> NamedTensors:
    """Tensors of a row of all buffers, loaded in the current graph."""
    names, found = _checked("load_remote", buffers, None)
    return NamedTensors.pack(names, [ops.remote_load(b, row, name) for name, b in zip(names, found, strict=True)])


def store_remote(buffers: NamedRemoteBuffers, tensors: NamedTensors, row: Any = 0) -> None:
    """Tensors stored in a row of the buffers of their names, in the current graph.

    Raises:
        TreeNameError: There is no buffer of a name.
    """
    for name, tensor in tensors.to_dict().items():
        ops.remote_store(buffers[name], row, tensor)


def _checked(kind: str, buffers: NamedRemoteBuffers, entries: int | None) -> tuple[list[str], list[popxl.RemoteBuffer]]:
    if not isinstance(buffers, DotTree):
        raise GraphTypeError(f"{kind} takes NamedRemoteBuffers, not {buffers!r}")
    names, found = buffers.unpack()
    for name, buffer in zip(names, found, strict=True):
        if entries is not None and buffer.entries < entries:
            raise GraphArgumentError(f"{kind}: the buffer of {name!r} has {buffer.entries} entries, not {entries}")
    return names, found


__all__ = [
    "NamedRemoteBuffers",
    "create_remote_buffer",
    "load_remote",
    "load_remote_graph",
    "named_variable_buffers",
    "store_remote",
    "store_remote_graph",
]
