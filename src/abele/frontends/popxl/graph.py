"""Graphs of popxl: ops in program order, on tensors that they may change in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from abele.errors import NetworkError
from abele.frontends.popxl.dtypes import as_dtype, dtype, of_element
from abele.frontends.popxl.errors import (
    ConstructionError,
    ContextError,
    GraphArgumentError,
    GraphTypeError,
    OperandError,
)
from abele.frontends.popxl.operations import GraphOperation, Meaning
from abele.frontends.popxl.tensors import Alias, Constant, Tensor, Variable
from abele.graph.debug import DebugRecord, caller
from abele.network import BlockBuilder, NetworkBuilder, Value
from abele.network.ir import OpBlock, needed
from abele.network.ir.value import Place
from abele.network.ops import build

if TYPE_CHECKING:
    from abele.frontends.popxl.ir import Ir
# --- where ops go -----------------------------------------------------------------------------------------------------


class _Current(local):
    """Choices of the contexts of a thread."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.ipu = 0
        self.scopes: tuple[str, ...] = ()


_current = _Current()


def get_current_graph() -> Graph:
    """The innermost graph that is selected.

    Raises:
        ContextError: None is.
    """
    if not _current.graphs:
        raise ContextError("There is no graph selected.", remedy="with ir.main_graph: …")
    return _current.graphs[-1]


def get_main_graph() -> Graph:
    """The main graph of the Ir of the current one."""
    return get_current_graph().ir.main_graph


def get_ir() -> Ir:
    """The Ir of the current graph."""
    return get_current_graph().ir


gcg, gmg, gir = get_current_graph, get_main_graph, get_ir


def current_ipu() -> int:
    """The IPU that ops made now run on."""
    return _current.ipu


@contextmanager
def in_sequence(enabled: bool | str = True) -> Iterator[None]:
    """Ops inside run in the order in which they are written, as all ops here do."""
    if enabled not in (True, False, "pass"):
        raise GraphArgumentError(f"in_sequence takes True, False or 'pass', not {enabled!r}")
    yield


@contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Names of tensors and ops made inside begin with a name."""
    before = _current.scopes
    _current.scopes = (*before, name)
    try:
        yield
    finally:
        _current.scopes = before


@contextmanager
def ipu(number: int) -> Iterator[None]:
    """Ops inside run on an IPU."""
    if number < 0:
        raise GraphArgumentError(f"IPU {number} is none: they count from 0")
    before = _current.ipu
    _current.ipu = int(number)
    try:
        yield
    finally:
        _current.ipu = before


@contextmanager
def io_tiles() -> Iterator[None]:
    """Nothing: this machine sets no tiles aside for the host."""
    yield


def block_of(meaning: Meaning, inputs: Sequence[Tensor]) -> OpBlock:
    """The meaning of an op for inputs of these types, as a block."""
    net = NetworkBuilder()
    values = [net.input(t.shape, t.dtype.element, t.name) for t in inputs]
    with net.at(place=Place(ipu=_current.ipu)):
        made = meaning(net, *values)
    results = [net.read(v) for v in ([made] if isinstance(made, Value) else made)]
    return OpBlock(tuple(values), tuple(needed(net.ops, results)), tuple(results))


class PrivateGraph:
    """A graph as PopART's own programs see it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def getOps(self) -> list[Any]:
        """Its ops in order, with ``opType()`` and ``name()``."""
        return list(self._graph.operations)


class Graph:
    """Ops in order, with inputs and outputs.

    Attributes:
        ir: Ir that it is of.
        name: Its name, unique in the Ir.
        inputs: Tensors that enter.
        outputs: Tensors that leave.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """An object for functions of popxl: programs do not call the class.

        Raises:
            ConstructionError: There are no arguments.
        """
        if not (arguments or options):
            raise ConstructionError(
                "popxl.Graph cannot be constructed directly.", remedy="ir.create_graph or ir.create_empty_graph"
            )
        return super().__new__(cls)

    def __init__(self, ir: Ir, name: str) -> None:
        self.ir, self.name = ir, name
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.operations: list[Any] = []
        self._tensors: dict[str, Tensor] = {}
        self._hooks: dict[int, Callable[[Any], None]] = {}

    # --- contexts and names

    @property
    def id(self) -> str:
        """Its name."""
        return self.name

    @property
    def main_graph(self) -> Graph:
        """The main graph of its Ir."""
        return self.ir.main_graph

    @property
    def is_main(self) -> bool:
        """True for the main graph."""
        return self is self.ir.main_graph

    def __enter__(self) -> Graph:
        if _current.graphs and _current.graphs[-1].ir is not self.ir:
            raise ContextError(f"the graph {self.name!r} is of another Ir than {_current.graphs[-1].name!r} around it")
        _current.graphs.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.graphs.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            raise GraphTypeError(f"a Graph is compared with {other!r}")
        return self is other

    def __hash__(self) -> int:
        return hash((self.ir.id, self.name))

    def __repr__(self) -> str:
        return f"Graph(id={self.name})"

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        """Inputs by name."""
        return {t.name: t for t in self.inputs}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(self._tensors.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Tensors that keep their values from run to run."""
        return tuple(t for t in self.tensors if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Tensors that never change."""
        return tuple(t for t in self.tensors if isinstance(t, Constant))

    @property
    def ipus(self) -> set[int]:
        """IPUs of its ops, and of ops of the graphs called."""
        own = {op.place.ipu for op in self.operations if getattr(op, "place", None) is not None}
        return own.union(*(g.ipus for g in self.called_graphs))

    @property
    def reached(self) -> set[Graph]:
        """It, and the graphs that its ops and those of called graphs call."""
        found, waiting = set[Graph](), [self]
        while waiting:
            graph = waiting.pop()
            if graph not in found:
                found.add(graph)
                waiting += graph.called_graphs
        return found

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """Graphs that its ops call."""
        found = [g for op in self.operations for g in getattr(op, "graphs", ())]
        return tuple(dict.fromkeys(found))

    def get_tensor(self, id: str) -> Tensor:
        """The tensor of an id.

        Raises:
            GraphArgumentError: There is none.
        """
        if id not in self._tensors:
            raise GraphArgumentError(f"Tensor {id} not found in {self.name}")
        return self._tensors[id]

    def __contains__(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor) and tensor.graph is self

    @property
    def _pb_graph(self) -> PrivateGraph:
        return PrivateGraph(self)

    def register_op_created_hook(self, fn: Callable[[Any], None]) -> int:
        """Call a function with each op that is made from now on; returns the number of the hook."""
        number = len(self._hooks) + 1
        self._hooks[number] = fn
        return number

    def remove_op_created_hook(self, handle: int) -> None:
        """Stop calling a function."""
        self._hooks.pop(handle, None)

    # --- making

    def enlist(self, tensor: Tensor, name: str) -> None:
        """Give a tensor its id."""
        base = "/".join((*([] if self.is_main else [self.name]), *_current.scopes, name))
        found, number = base, 0
        while found in self._tensors:
            found, number = f"{base}__t{number}", number + 1
        tensor.id = found
        self._tensors[found] = tensor

    def disown(self, tensor: Tensor) -> None:
        """Forget a tensor, which another graph is to have."""
        self._tensors.pop(tensor.id, None)

    def add(self, operation: Any) -> None:
        """Append an op."""
        if self.ir.is_frozen:
            raise ContextError("The Ir can not change after a session was made of it", remedy="make the session last")
        self.operations.append(operation)
        for hook in self._hooks.values():
            hook(operation)

    def emit(
        self,
        kind: str,
        meaning: Meaning,
        inputs: Sequence[Tensor],
        *,
        modifies: Sequence[int] = (),
        name: str | None = None,
        kinds: Sequence[dtype] | None = None,
        ipus: Sequence[int] | None = None,
        backward: Meaning | None = None,
    ) -> tuple[Tensor, ...]:
        """Append an op, and give what it makes.

        Args:
            kind: Name of the op.
            meaning: Function that makes the values of the outputs.
            inputs: Tensors that it reads.
            modifies: Numbers of inputs that it changes: their values are the last results of ``meaning``.
            name: Name of the outputs.
            kinds: Types of the outputs on the host, where they are not those of the device.
            ipus: IPUs of the outputs, where they are several.
            backward: Gradients of the inputs from those of the outputs, in place of the meaning's derivative.
        """
        for number, tensor in enumerate(inputs):
            self.check_here(tensor, f"number {number}")
        origin, place = here(kind)
        try:
            block = block_of(meaning, inputs)
        except NetworkError as error:
            shown = ", ".join(f"{t.id!r} {t.dtype.name}{list(t.shape)}" for t in inputs)
            raise OperandError(f"{kind}: {error.message}", because=shown, remedy=error.remedy) from None
        count = len(block.results) - len(modifies)
        parts = {t.shape: t.meta_shape for t in inputs if t.meta_shape}
        outputs = [
            Tensor(
                self,
                name or f"{kind}_out",
                v.shape,
                kinds[n] if kinds else of_element(v.dtype),
                ipu=ipus[n] if ipus else _current.ipu,
                meta_shape=parts.get(v.shape, ()),
            )
            for n, v in enumerate(block.results[:count])
        ]
        back = block_of(backward, outputs) if backward is not None else None
        self.add(
            GraphOperation(
                kind, tuple(inputs), outputs, block, tuple(modifies), origin=origin, place=place, backward=back
            )
        )
        return tuple(outputs)

    def change(self, kind: str, meaning: Meaning, inputs: Sequence[Tensor], name: str | None = None) -> Tensor:
        """Append an op that changes its first input in place, and give what shows that input."""
        target = inputs[0]
        kept = target.dtype.element
        target.check_writable(kind)

        def changed(net: BlockBuilder, *values: Value) -> Value:
            made = meaning(net, *values)
            made = made if isinstance(made, Value) else made[0]
            if made.shape != values[0].shape:
                raise GraphArgumentError(
                    f"{kind} makes {list(made.shape)}, which does not fit in {target.id!r} {list(values[0].shape)}"
                )
            return build.cast(net, made, kept)

        self.emit(kind, changed, inputs, modifies=(0,), name=name)
        made = Tensor(self, name or f"{kind}_out", target.shape, target.dtype, ipu=target.ipu, alias=Alias(target))
        made.meta_shape = target.meta_shape
        return made

    def view(self, kind: str, read: Meaning, write: Meaning, *bases: Tensor) -> Tensor:
        """Append a view of tensors: writes through it change them.

        Args:
            kind: Name of the op.
            read: The view's value, of the tensors'.
            write: The tensors' values, of them and of a new value of the view.
            *bases: The tensors.
        """
        (made,) = self.emit(kind, read, bases)
        made.alias = Alias(bases[0], block_of(read, bases), block_of(write, [*bases, made]), tuple(bases[1:]))
        operation = self.operations[-1]
        operation.is_view = True
        return made

    def check_here(self, tensor: Tensor, what: str) -> None:
        """Raise unless a tensor is of this graph.

        Raises:
            GraphArgumentError: It is of another.
        """
        if tensor.graph is not self:
            raise GraphArgumentError(
                f"The input tensor `{what}` is not in the current Graph: {tensor.id!r} is of {tensor.graph.name!r}, "
                f"ops go to {self.name!r}",
                remedy="hand it to the graph as an input",
            )
        tensor.check_usable()


def here(kind: str) -> tuple[DebugRecord, Place]:
    """Line of the program and IPU of an op that is made now."""
    file, line = caller()
    text = "/".join((*_current.scopes, kind)) if _current.scopes else ""
    return DebugRecord(kind, file=file, line=line, text=text), Place(ipu=_current.ipu)


def graph_input(
    shape: Sequence[int] = (),
    dtype: Any = None,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Sequence[int] | None = None,
) -> Tensor:
    """A new input of the current graph.

    Raises:
        GraphArgumentError: That is the main graph.
    """
    graph = get_current_graph()
    if graph.is_main:
        raise GraphArgumentError("Can not add inputs to the main graph", remedy="load them from a stream")
    shape = (shape,) if isinstance(shape, int) else shape
    made = Tensor(graph, name or "t", shape, as_dtype(dtype if dtype is not None else np.float32), by_ref=by_ref)
    made.meta_shape = tuple(meta_shape or ())
    graph.inputs.append(made)
    return made


def graph_output(t: Tensor) -> None:
    """Let a tensor be an output of the current graph.

    Raises:
        GraphArgumentError: That is the main graph, or not the tensor's.
    """
    graph = get_current_graph()
    if graph.is_main:
        raise GraphArgumentError("Can not add outputs to the main graph", remedy="store them to a stream")
    graph.check_here(t, "t")
    graph.outputs.append(t)


__all__ = [
    "Graph",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "in_sequence",
    "io_tiles",
    "ipu",
    "name_scope",
]
