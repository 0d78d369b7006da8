"""PopXL's names: programs of graphs, which become networks."""

from __future__ import annotations

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl import dtypes, errors, ops, transforms
from abele.frontends.popxl.dtypes import (
    bool,
    double,
    dtype,
    float,
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
    Ir,
    Module,
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
from abele.frontends.popxl.session import Session
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
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "Session",
    "Tensor",
    "TensorByRef",
    "TensorSpec",
    "Variable",
    "bool",
    "constant",
    "create_seeds",
    "d2h_stream",
    "double",
    "dtype",
    "dtypes",
    "errors",
    "float",
    "float16",
    "float32",
    "float64",
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
    "transforms",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable",
]
