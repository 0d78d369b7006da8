"""``popxl.Ir``: a program of graphs, with its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.frontends.popxl.errors import (
    ContextError,
    GraphArgumentError,
    GraphTypeError,
)
from abele.frontends.popxl.graph import Graph, graph_input
from abele.frontends.popxl.replicas import ReplicaGrouping, strided_grouping
from abele.frontends.popxl.tensors import Tensor, TensorSpec
from abele.job.launched import launched_replicas, launched_size

if TYPE_CHECKING:
    from abele.frontends.popxl.remote import RemoteBuffer
    from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream


@dataclass
class IrOptions:
    """Options that programs set of an Ir.

    Attributes:
        partialsTypeMatMuls: Type in which products keep partial sums.
        numIOTiles: Tiles for the host: no meaning here.
        enableStochasticRounding: Round float16 at random.
    """

    partialsTypeMatMuls: str = "float"  # noqa: N815
    numIOTiles: int = 0  # noqa: N815
    enableStochasticRounding: bool = False  # noqa: N815
    engineOptions: dict[str, str] = field(default_factory=dict)  # noqa: N815


class _PrivateIr:
    def __init__(self, ir: Ir) -> None:
        self._ir = ir

    def getSessionOptions(self) -> IrOptions:
        """The options."""
        return self._ir.options


class Module:
    """A callable that builds a graph: subclasses define ``build``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of ``build``."""
        return self.build(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """To be defined."""
        raise NotImplementedError("Your popxl.Module must define a build method")


class Ir:
    """A program: a main graph and those that it calls.

    Attributes:
        options: Options of sessions.
        ranks: Processes that share the replicas.

    Args:
        replication: Number of replicas; "popdist" for those of the job that started this process.

    Raises:
        GraphArgumentError: It is neither.
    """

    _count = 0

    def __init__(self, replication: int | str = 1) -> None:
        Ir._count += 1
        self.is_frozen = self._has_groups = False
        self.ranks = launched_size() if replication == "popdist" else 1
        self._replicas = 1
        self.replication_factor = launched_replicas() * self.ranks if replication == "popdist" else replication
        self._has_groups = False
        self.id = Ir._count
        self._graphs: dict[str, Graph] = {}
        self._names: dict[str, int] = {}
        self._transfers = 1
        self.options = IrOptions()
        self.h2d: dict[str, HostToDeviceStream] = {}
        self.d2h: dict[str, DeviceToHostStream] = {}
        self.remote_buffers: list[RemoteBuffer] = []
        self._main = Graph(self, "main")

    @property
    def main_graph(self) -> Graph:
        """The graph that a run runs."""
        return self._main

    @property
    def replication_factor(self) -> int:
        """Replicas of the program, of all processes together."""
        return self._replicas

    @replication_factor.setter
    def replication_factor(self, value: Any) -> None:
        """Let the program have so many replicas.

        Raises:
            ContextError: A session was made of it, or groups of another number of replicas.
            GraphArgumentError: It is no positive whole number, or the processes do not share it.
        """
        if self.is_frozen:
            raise ContextError("Cannot set the replication factor after a session was made", remedy="set it before")
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise GraphArgumentError(f"the replication factor is a positive whole number or 'popdist', not {value!r}")
        if value % self.ranks:
            raise GraphArgumentError(f"{value} replicas cannot be shared by {self.ranks} processes")
        if self._has_groups and value != self._replicas:
            raise ContextError(
                f"the Ir has groups of {self._replicas} replicas, and is to have {value}",
                remedy="set the replication factor before groups, grouped variables and collectives are made",
            )
        self._replicas = int(value)

    @property
    def num_host_transfers(self) -> int:
        """Entries of each stream that one run has."""
        return self._transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: Any) -> None:
        """Let a run have so many entries of each stream.

        Raises:
            ContextError: A session was made of it.
            GraphArgumentError: It is no positive whole number.
        """
        if self.is_frozen and value != self._transfers:
            raise ContextError("Cannot set num_host_transfers after a session was made", remedy="set it before")
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise GraphArgumentError(f"num_host_transfers is a positive whole number, not {value!r}")
        self._transfers = int(value)

    @property
    def instance_replication_factor(self) -> int:
        """Replicas that this process executes."""
        return self._replicas // self.ranks

    def replica_grouping(self, stride: int | None = None, group_size: int | None = None) -> ReplicaGrouping:
        """Groups of replicas; see :func:`~abele.frontends.popxl.replicas.strided_grouping`."""
        self._has_groups = True
        return strided_grouping(self, stride, group_size)

    def replica_grouping_from_assignments(self, assignments: Sequence[int]) -> ReplicaGrouping:
        """The grouping in which each replica is of the group with a number."""
        self._has_groups = True
        return ReplicaGrouping(self, assignments)

    @property
    def _pb_ir(self) -> _PrivateIr:
        return _PrivateIr(self)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """All streams from the host."""
        return set(self.h2d.values())

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """All streams to the host."""
        return set(self.d2h.values())

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs that were made, and the main graph."""
        return (self._main, *self._graphs.values())

    def dot_checkpoint(self, check: str, save_dir: str | None = None) -> None:
        """Write its graphs as ``check.dot``, for Graphviz.

        Args:
            check: Name of the file.
            save_dir: Its directory; by default the current one.
        """
        graphs: dict[str, Graph] = {}
        waiting = [self._main]
        while waiting:
            graph = waiting.pop()
            graphs[graph.name] = graph
            waiting += [g for g in graph.called_graphs if g.name not in graphs]
        lines = ["digraph {"]
        for name, graph in graphs.items():
            lines += [f'subgraph "cluster_{name}" {{', f'label="{name}"']
            for number, op in enumerate(graph.operations):
                lines.append(f'"{name}/{number}" [shape=box label="{op.opType()}"]')
                read = getattr(op, "inputs", ())
                flat = [t for t in read if isinstance(t, Tensor)] or [t for group in read for t in group]
                lines += [f'"{t.id}" -> "{name}/{number}"' for t in flat]
                lines += [f'"{name}/{number}" -> "{t.id}"' for t in getattr(op, "outputs", ())]
            lines.append("}")
        (Path(save_dir or ".") / f"{check}.dot").write_text("\n".join([*lines, "}"]), "utf-8")

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs or ops."""
        base = name or "graph"
        number = self._names.get(base, 0)
        self._names[base] = number + 1
        made = self._graphs[f"{base}_{number}"] = Graph(self, f"{base}_{number}")
        return made

    def create_graph(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """The graph that a function builds.

        Args:
            fn: Function or module; it is called once.
            *args: Its arguments; tensors and specs become inputs of the graph.
            **kwargs: Further ones by name.

        Raises:
            GraphTypeError: ``fn`` has no name, or a list mixes tensors with other things.
            GraphArgumentError: Arguments that do not bind, or a result that is no tensor.
        """
        owner = type(fn) if isinstance(fn, Module) else fn
        qualname = getattr(owner, "__qualname__", None)
        if qualname is None:
            raise GraphTypeError(
                "Callable `fn` does not have a `__qualname__` attribute", remedy="wrap it in a popxl.Module"
            )
        signature = inspect.signature(fn.build if isinstance(fn, Module) else fn)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise GraphArgumentError(f"Arguments do not bind to {qualname}: {error}") from None
        bound.apply_defaults()
        made = self.create_empty_graph(qualname.replace(".<locals>", ""))
        with made:
            for name, value in list(bound.arguments.items()):
                bound.arguments[name] = self._entered(made, signature.parameters[name], name, value)
            result = fn(*bound.args, **bound.kwargs)
            for tensor in _results(qualname, result):
                made.check_here(tensor, "output")
                made.outputs.append(tensor)
        return made

    def _entered(self, graph: Graph, parameter: inspect.Parameter, name: str, value: Any) -> Any:
        by_ref = "TensorByRef" in str(parameter.annotation)
        if isinstance(value, Tensor | TensorSpec):
            return _enter(value, name, by_ref)
        if isinstance(value, Mapping) and parameter.kind is parameter.VAR_KEYWORD:
            return {
                key: self._entered(graph, parameter.replace(kind=parameter.KEYWORD_ONLY), key, v)
                for key, v in value.items()
            }
        if isinstance(value, list | tuple):
            count = sum(isinstance(v, Tensor | TensorSpec) for v in value)
            if parameter.kind is not parameter.VAR_POSITIONAL and 0 < count < len(value):
                raise GraphTypeError(f"The argument {name!r} mixes tensors with other things")
            made = [
                _enter(v, f"{name}_{n}", by_ref) if isinstance(v, Tensor | TensorSpec) else v
                for n, v in enumerate(value)
            ]
            return type(value)(made) if type(value) in (list, tuple) else made
        return value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ir):
            raise GraphTypeError(f"an Ir is compared with {other!r}")
        return self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Ir(id={self.id})"


def _enter(given: Tensor | TensorSpec, name: str, by_ref: bool) -> Tensor:
    return graph_input(given.shape, given.dtype, name, by_ref=by_ref, meta_shape=given.meta_shape)


def _results(name: str, result: Any) -> list[Tensor]:
    found = [] if result is None else [result] if isinstance(result, Tensor) else result
    if not isinstance(found, list | tuple) or not all(isinstance(t, Tensor) for t in found):
        raise GraphArgumentError(f"The outputs of {name} must be tensors or None, not {result!r}")
    return list(found)
