"""``popxl.tensor``: tensors by their names there, and names of what stands for one."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from abele.arrays import Array
from abele.frontends.popxl.graph import graph_input, graph_output
from abele.frontends.popxl.tensors import (
    Constant,
    Tensor,
    TensorByRef,
    TensorSpec,
    Variable,
    constant,
    variable,
)

ScalarType: TypeAlias = int | float | bool
HostTensor: TypeAlias = Array | Sequence[Any]
HostScalarTensor: TypeAlias = ScalarType | HostTensor
TensorLike: TypeAlias = Tensor | HostScalarTensor


def __getattr__(name: str) -> Any:
    # Modules that themselves need this one.
    if name == "remote_variable":
        from abele.frontends.popxl import remote

        return remote.remote_variable
    if name in ("remote_replica_sharded_variable", "replica_sharded_variable", "replica_sharded_buffer"):
        from abele.frontends.popxl import sharding

        return getattr(sharding, name)
    raise AttributeError(f"popxl.tensor has no {name!r}")


__all__ = [
    "Constant",
    "HostScalarTensor",
    "HostTensor",
    "ScalarType",
    "Tensor",
    "TensorByRef",
    "TensorLike",
    "TensorSpec",
    "Variable",
    "constant",
    "graph_input",
    "graph_output",
    "variable",
]
