"""Helpers of the host: weights by tensor, seeds, clocks, names."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from abele import __version__
from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl import ops
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.tensors import Tensor, host_array

GIT_COMMIT = f"abele-{__version__}"
"""Abele's version, in place of the addons' commit."""


def to_numpy(x: Any, dtype: Any = None, copy: bool = True) -> Array:
    """An array, a tensor of PyTorch or a number as an array of NumPy.

    Args:
        x: The array, tensor or number.
        dtype: Type of PopXL, NumPy or PyTorch; by default its own, with 64 bits as 32.
        copy: False to allow that it shares memory with ``x``.
    """
    if not copy and isinstance(x, np.ndarray) and dtype is None and x.dtype.itemsize < 8:
        return np.ascontiguousarray(x)
    return host_array(x, dtype)[0]


class WeightsDict(dict[Tensor, Any]):
    """Arrays by variable, for ``session.write_variables_data``; each has the variable's type.

    Args:
        data: Arrays, or tensors of PyTorch, by variable.

    Raises:
        GraphTypeError: A key is no tensor.
        GraphArgumentError: An array has another shape, or a variable is there already.
    """

    def __init__(self, data: Mapping[Tensor, Any] | Iterable[tuple[Tensor, Any]] | None = None) -> None:
        super().__init__()
        self.update(data or {})

    def __setitem__(self, tensor: Tensor, value: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise GraphTypeError(f"a WeightsDict has arrays by tensor, not by {tensor!r}")
        array = to_numpy(value, tensor.dtype)
        shape = tuple(getattr(tensor, "shape_on_host", tensor.shape))
        # Data of one group may have the group's axis.
        if array.shape not in (shape, (1, *shape)) and tensor.meta_shape == ():
            raise GraphArgumentError(
                f"the weight for {tensor.id!r} is {list(array.shape)}, the variable {list(shape)}",
                remedy="weights of a Linear are [in, out]: the transpose of PyTorch's",
            )
        super().__setitem__(tensor, array if array.shape != (1, *shape) else array[0])

    def update(self, *others: Any, **more: Any) -> None:
        """Add weights of other variables.

        Raises:
            GraphArgumentError: A variable is there already.
        """
        if more:
            raise GraphTypeError(f"a WeightsDict has arrays by tensor, not by the name {next(iter(more))!r}")
        for other in others:
            for tensor, value in other.items() if isinstance(other, Mapping) else other:
                if tensor in self:
                    raise GraphArgumentError(f"{tensor!r} has a weight already", remedy="weights[tensor] = array")
                self[tensor] = value

    def __repr__(self) -> str:
        shown = ", ".join(f"{t.id}: {list(np.shape(v))}" for t, v in self.items())
        return f"WeightsDict({shown})"


@contextmanager
def timer(name: str = "", log: Any = print) -> Iterator[None]:
    """A context that says how long it took.

    Args:
        name: Name before the time.
        log: Function that takes the text, such as ``logging.info``.
    """
    begin = time.perf_counter()
    try:
        yield
    finally:
        log(f"{name} took {time.perf_counter() - begin:.3f} s".strip())


def seed_variable(seed: int, replica_grouping: Any = None) -> tuple[Tensor, Tensor]:
    """A variable that is another seed in each run, and the seed of this one.

    Args:
        seed: Number that all of them are made of.
        replica_grouping: Groups of replicas with seeds of their own; by default all have the same.

    Returns:
        The variable, and a tensor uint32[2] of the current graph, which is the main one.
    """
    groups = {} if replica_grouping is None else {"replica_grouping": replica_grouping}
    seeds = popxl.create_seeds(seed, replicas=getattr(replica_grouping, "num_groups", 1))
    state = popxl.variable(seeds, popxl.uint32, "seed", **groups)
    following, current = ops.split_random_seed(state)
    ops.var_updates.copy_var_update_(state, following)
    return state, current


null_context = nullcontext
"""A context that changes nothing, under the addons' name."""


def suffix_graph_name(name: str, suffix: str) -> str:
    """Name of a graph that is made of another: a number at its end, which makes it unique, is left out."""
    base, _, number = name.rpartition("_")
    return f"{base if base and number.isdigit() else name}_{suffix}"


__all__ = ["GIT_COMMIT", "WeightsDict", "null_context", "seed_variable", "suffix_graph_name", "timer", "to_numpy"]
