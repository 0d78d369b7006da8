"""Makers of variables: each knows the input of a graph for its variables, and their first data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl.dtypes import as_dtype, dtype, narrowed
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.named_replica_grouping import NamedReplicaGrouping
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.rts import replica_sharded_spec

Data = Callable[[], Any] | Iterable[Any]
"""Arrays to begin with: a function that makes the next, or the arrays one after the other."""


class VariableFactory:
    """Maker of variables for one input of a graph.

    Args:
        data_iter: Function that gives data each time, or an iterable of data: every variable takes the next.
        dtype: Type of the variables; by default the data's, with 32 bits at most.
        name: Name of the variables.
        by_ref: True if the graph changes the input.
        replica_grouping: Replicas that hold the same; of each group the next data are taken.

    Attributes:
        shape: Shape of the input.
        dtype: Type of the input.
    """

    def __init__(
        self,
        data_iter: Data,
        dtype: Any = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_grouping: Any = None,
    ) -> None:
        self._draw = _drawer(data_iter)
        self.name, self.by_ref, self.replica_grouping = name, by_ref, replica_grouping
        first = _host(self._draw())
        self._drawn: list[Array] = [first]
        self.dtype: dtype = narrowed(as_dtype(first.dtype)) if dtype is None else as_dtype(dtype)
        self.shape: tuple[int, ...] = first.shape

    @property
    def num_groups(self) -> int:
        """Groups of replicas, each with data of its own."""
        return 1 if self.replica_grouping is None else int(self.replica_grouping.num_groups)

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Shape of a variable's data, [num_groups, …] if there are several groups."""
        return ((self.num_groups,) if self.num_groups > 1 else ()) + self.shape

    def create_input(self, prefix: str | None = None) -> popxl.Tensor:
        """A new input of the current graph that its variables fit."""
        return popxl.graph_input(self.shape, self.dtype, _joined(prefix, self.name), by_ref=self.by_ref)

    # --- data

    def data(self, empty: bool = False, memmap: Path | None = None) -> Array:
        """Data of the next variable.

        Args:
            empty: Zeros, and nothing is drawn.
            memmap: File that is to hold them; with ``empty`` what it holds already stays.
        """
        if empty:
            made = np.zeros(self.host_shape, self.dtype.as_numpy())
        else:
            parts = [self._next() for _ in range(self.num_groups)]
            made = np.stack(parts) if self.num_groups > 1 else parts[0]
        if memmap is None:
            return made
        if empty and memmap.exists():
            kept = np.lib.format.open_memmap(memmap, mode="r+")
            if (kept.dtype, kept.shape) != (made.dtype, made.shape):
                raise GraphArgumentError(
                    f"{memmap} holds {kept.dtype}{list(kept.shape)}, the variable {made.dtype}{list(made.shape)}",
                    remedy="remove the file, or name another folder",
                )
            return kept
        memmap.parent.mkdir(parents=True, exist_ok=True)
        mapped = np.lib.format.open_memmap(memmap, mode="w+", dtype=made.dtype, shape=made.shape)
        if not empty:
            mapped[...] = made
        return mapped

    def _next(self) -> Array:
        array = self._drawn.pop() if self._drawn else _host(self._draw())
        if array.shape != self.shape:
            raise GraphArgumentError(f"the data of {self.name!r} were {list(self.shape)}, now {list(array.shape)}")
        return np.asarray(array, self.dtype.as_numpy())

    # --- variables

    def init(
        self, prefix: str | None = None, empty: bool = False, memmap_dir: str | Path | None = None
    ) -> popxl.Tensor:
        """A new variable.

        Args:
            prefix: Name before its own.
            empty: Let it hold zeros, and draw nothing: weights are loaded later.
            memmap_dir: Folder whose file of the variable's name is to hold its data.
        """
        name = _joined(prefix, self.name)
        return self._variable(self.data(empty, _file(memmap_dir, name)), name)

    def _variable(self, data: Array, name: str) -> popxl.Tensor:
        return popxl.variable(data, self.dtype, name=name, **self._grouping())

    def _grouping(self) -> dict[str, Any]:
        return {} if self.replica_grouping is None else {"replica_grouping": self.replica_grouping}

    def init_remote(
        self,
        buffer: Any,
        entry: int = 0,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | Path | None = None,
    ) -> popxl.Tensor:
        """A new variable in streaming memory: an entry of a buffer."""
        name = _joined(prefix, self.name)
        return self._remote(self.data(empty, _file(memmap_dir, name)), buffer, entry, name)

    def _remote(self, data: Array, buffer: Any, entry: int, name: str) -> popxl.Tensor:
        make = popxl.remote_replica_sharded_variable if buffer.meta_shape else popxl.remote_variable
        made: popxl.Tensor = make(data, buffer, entry, dtype=self.dtype, name=name, **self._grouping())
        return made

    @property
    def shard_over(self) -> int:
        """Number of replicas to shard a variable over, by default.

        Variables with fewer elements than there are replicas stay whole, so that each has a part.
        """
        grouping = popxl.gir().replica_grouping() if self.replica_grouping is None else self.replica_grouping
        return int(grouping.group_size) if math.prod(self.shape) >= grouping.group_size and self.shape else 1

    def buffer(self, entries: int = 1, shard_over: int | None = None) -> Any:
        """A new remote buffer for its variables.

        Args:
            entries: Rows of the buffer.
            shard_over: Replicas that a variable is sharded over; by default, and for 1, it is whole.
        """
        if shard_over is None or shard_over <= 1:
            return popxl.remote_buffer(self.shape, self.dtype, entries)
        grouping = popxl.gir().replica_grouping() if self.replica_grouping is None else self.replica_grouping
        return popxl.replica_sharded_buffer(
            self.shape, self.dtype, replica_grouping=grouping, shard_over=shard_over, entries=entries
        )

    def init_zero(self, prefix: str | None = None) -> popxl.Tensor:
        """A tensor of zeros of the current graph, for the input."""
        return popxl.ops.init(self.shape, self.dtype, name=_joined(prefix, self.name), init_type="zero")

    def init_undef(self, prefix: str | None = None) -> popxl.Tensor:
        """A tensor of the current graph, for the input, that is to be written first."""
        return popxl.ops.init(self.shape, self.dtype, name=_joined(prefix, self.name), init_type="undef")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} {self.dtype.name} {self.shape})"


class ShardedVariableFactory(VariableFactory):
    """Maker of variables in streaming memory, of which each replica has a part.

    Args:
        data_iter: As for :class:`VariableFactory`.
        dtype: Type of the variables.
        name: Name of the variables.
        by_ref: True if the graph changes the input.
        replica_grouping: Replicas that hold the same.
        shard_over: Replicas of a group that have a part each; by default all of it.
    """

    def __init__(
        self,
        data_iter: Data,
        dtype: Any = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_grouping: Any = None,
        *,
        shard_over: int | None = None,
    ) -> None:
        super().__init__(data_iter, dtype, name, by_ref, replica_grouping)
        self._shard_over = shard_over

    @property
    def shard_over(self) -> int:
        """Replicas that a variable is sharded over."""
        return super().shard_over if self._shard_over is None else self._shard_over

    @property
    def spec(self) -> popxl.TensorSpec:
        """A replica's part."""
        return replica_sharded_spec(self, self.shard_over)

    def create_input(self, prefix: str | None = None) -> popxl.Tensor:
        """A new input of the current graph for a replica's part."""
        spec = self.spec
        return popxl.graph_input(
            spec.shape, self.dtype, _joined(prefix, self.name), by_ref=self.by_ref, meta_shape=spec.meta_shape
        )

    def buffer(self, entries: int = 1, shard_over: int | None = None) -> Any:
        """A new remote buffer for its variables, which are sharded."""
        return super().buffer(entries, self.shard_over)

    def _variable(self, data: Array, name: str) -> popxl.Tensor:
        """A replica's part of a new variable, loaded in the main graph."""
        if self.shard_over <= 1:
            return super()._variable(data, name)
        _, shard = popxl.replica_sharded_variable(
            data, self.dtype, name=name, shard_over=self.shard_over, **self._grouping()
        )
        made: popxl.Tensor = shard
        return made

    def init_zero(self, prefix: str | None = None) -> popxl.Tensor:
        """A replica's part of a tensor of zeros of the current graph."""
        made = popxl.ops.init(self.spec.shape, self.dtype, name=_joined(prefix, self.name))
        made.meta_shape = self.spec.meta_shape
        return made

    init_undef = init_zero


class NamedVariableFactories(DotTree[VariableFactory]):
    """Makers of all variables of a graph, by name."""

    def init(
        self, prefix: str | None = None, empty: bool = False, memmap_dir: str | Path | None = None
    ) -> NamedTensors:
        """New variables of all names; see :meth:`VariableFactory.init`.

        A name of the tree that is not a factory's own is part of the variable's name.
        """
        return NamedTensors.from_dict(
            {
                name: fact.init(_joined(prefix, _before(name)), empty, memmap_dir)
                for name, fact in self.to_dict().items()
            }
        )

    def init_remote(
        self,
        buffers: DotTree[Any],
        entry: int = 0,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | Path | None = None,
    ) -> NamedTensors:
        """New variables of all names in an entry of remote buffers of the same names.

        Raises:
            TreeNameError: There is no buffer of a name.
        """
        return NamedTensors.from_dict(
            {
                name: fact.init_remote(buffers[name], entry, _joined(prefix, _before(name)), empty, memmap_dir)
                for name, fact in self.to_dict().items()
            }
        )

    def init_zero(self, prefix: str | None = None) -> NamedTensors:
        """Tensors of zeros of the current graph, by name."""
        return NamedTensors.from_dict(
            {name: fact.init_zero(_joined(prefix, _before(name))) for name, fact in self.to_dict().items()}
        )

    def init_undef(self, prefix: str | None = None) -> NamedTensors:
        """Tensors of the current graph that are to be written first, by name."""
        return NamedTensors.from_dict(
            {name: fact.init_undef(_joined(prefix, _before(name))) for name, fact in self.to_dict().items()}
        )

    @property
    def replica_groupings(self) -> NamedReplicaGrouping:
        """Replica groupings by name."""
        return NamedReplicaGrouping.from_dict({name: f.replica_grouping for name, f in self.to_dict().items()})


def add_variable_input(
    name: str,
    data_iter: Data,
    dtype: Any = None,
    by_ref: bool = False,
    replica_grouping: Any = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """A new input of the current graph, and the maker of variables for it; see :class:`VariableFactory`."""
    made = VariableFactory(data_iter, dtype, name, by_ref, replica_grouping)
    return made.create_input(), made


def add_replica_sharded_variable_input(
    name: str,
    data_iter: Data,
    dtype: Any = None,
    by_ref: bool = False,
    replica_grouping: Any = None,
    shard_over: int | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """A new input of the current graph for a replica's part, and the maker; see :class:`ShardedVariableFactory`."""
    made = ShardedVariableFactory(data_iter, dtype, name, by_ref, replica_grouping, shard_over=shard_over)
    return made.create_input(), made


def _drawer(data: Data) -> Callable[[], Any]:
    if callable(data):
        return data
    if isinstance(data, str) or hasattr(data, "dtype") or not isinstance(data, Iterable):
        raise GraphTypeError(
            f"data are a function or an iterable of arrays, not {type(data).__name__}",
            remedy="give lambda: array for the same array each time, or [array] for one variable",
        )
    source: Iterator[Any] = iter(data)

    def draw() -> Any:
        try:
            return next(source)
        except StopIteration:
            raise GraphArgumentError(
                "the data of a variable are at an end", remedy="give a function, or an iterable of more arrays"
            ) from None

    return draw


def _host(given: Any) -> Array:
    if hasattr(given, "detach") and hasattr(given, "numpy"):
        given = given.detach().cpu().numpy()
    return np.asarray(given)


def _joined(*words: str | None) -> str:
    return ".".join(w for w in words if w)


def _before(name: str) -> str:
    return name.rpartition(".")[0]


def _file(folder: str | Path | None, name: str) -> Path | None:
    return None if folder is None else Path(folder) / f"{name}.npy"


__all__ = [
    "NamedVariableFactories",
    "ShardedVariableFactory",
    "VariableFactory",
    "add_replica_sharded_variable_input",
    "add_variable_input",
]
