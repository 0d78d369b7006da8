"""PopXL's names: programs of graphs, which become networks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import nearest
from abele.frontends.popxl import context, dtypes, errors, fp8_utils, ops, streams, tensor, transforms, utils
from abele.frontends.popxl.dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from abele.frontends.popxl.graph import (
    Graph,
    gcg,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    graph_input,
    graph_output,
    in_sequence,
    io_tiles,
    ipu,
    name_scope,
)
from abele.frontends.popxl.ir import Ir, Module
from abele.frontends.popxl.locations import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)
from abele.frontends.popxl.remote import RemoteBuffer, remote_buffer, remote_variable
from abele.frontends.popxl.replicas import ReplicaGrouping
from abele.frontends.popxl.session import Session
from abele.frontends.popxl.sharding import (
    remote_replica_sharded_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
)
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from abele.frontends.popxl.tensors import Constant, Tensor, TensorByRef, TensorSpec, Variable, constant, variable


def create_seeds(
    seed: int, offset: int = 0, batches_per_step: int = 1, gradient_accumulation_factor: int = 1, replicas: int = 1
) -> Array:
    """Seeds of one number, [batches, accumulation, replicas, 2] without dimensions of 1."""
    counts = (batches_per_step, gradient_accumulation_factor, replicas)
    total = int(np.prod(counts))
    draws = np.random.default_rng(seed).integers(0, 2**64, size=offset + total, dtype=np.uint64)[offset:]
    words = np.stack([draws >> np.uint64(32), draws & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
    return words.reshape(*(n for n in counts if n > 1), 2)


__all__ = [
    "Constant",
    "DeviceToHostStream",
    "ExecutionContext",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "RemoteBuffer",
    "ReplicaGrouping",
    "ReplicatedTensorSharding",
    "Session",
    "Tensor",
    "TensorByRef",
    "TensorLocation",
    "TensorSpec",
    "TensorStorage",
    "TileSet",
    "Variable",
    "bool",
    "complex64",
    "complex128",
    "constant",
    "context",
    "create_seeds",
    "d2h_stream",
    "double",
    "dtype",
    "dtypes",
    "errors",
    "float",
    "float8_143",
    "float8_152",
    "float16",
    "float32",
    "float64",
    "fp8_utils",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "h2d_stream",
    "half",
    "in_sequence",
    "int8",
    "int16",
    "int32",
    "int64",
    "io_tiles",
    "ipu",
    "name_scope",
    "ops",
    "remote_buffer",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "streams",
    "tensor",
    "transforms",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "utils",
    "variable",
]


_RENAMED = {"ir": "graph", "module": "graph", "replica_grouping": "replicas", "tensor_location": "locations"}
"""Modules of PopXL whose names are others here."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        return import_module(f"{__name__}.{_RENAMED[name]}")
    close = nearest(name, __all__)
    raise AttributeError(f"popxl has no {name!r}" + (f"; {close!r} is near" if close else ""))
