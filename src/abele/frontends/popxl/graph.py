"""Graphs of popxl: ops in program order, on tensors that they may change in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.frontends.popxl.dtypes import as_dtype, dtype, of_element
from abele.frontends.popxl.errors import ContextError, GraphArgumentError, GraphTypeError
from abele.frontends.popxl.tensors import Alias, Constant, Tensor, TensorByRef, TensorSpec, Variable
from abele.graph.debug import DebugRecord, caller
from abele.network import BlockBuilder, NetworkBuilder, Value
from abele.network.ir import OpBlock, needed
from abele.network.ir.value import Place
from abele.network.ops import build

if TYPE_CHECKING:
    from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream

Meaning = Callable[..., Value | Sequence[Value]]
"""Function that appends what an op computes: it takes a builder and the values of the inputs."""

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


# --- ops --------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class GraphOperation:
    """An op of a graph, by what it computes.

    Attributes:
        kind: Its name.
        inputs: Tensors that it reads, each once.
        outputs: Tensors that it makes.
        block: Its meaning: the values of outputs, then those that changed inputs have afterwards.
        modifies: Numbers of the inputs that it changes.
        origin: Name and place in the program.
        place: IPU that it runs on.
        is_view: True if the output shows the input's elements.
    """

    kind: str
    inputs: tuple[Tensor, ...]
    outputs: list[Tensor]
    block: OpBlock
    modifies: tuple[int, ...]
    origin: DebugRecord
    place: Place
    is_view: bool = False

    def opType(self) -> str:
        """Its kind."""
        return self.kind

    def name(self) -> str:
        """Scope and kind."""
        return self.origin.text or self.kind


@dataclass(eq=False)
class HostLoad:
    """A read of the next entry of a stream."""

    stream: HostToDeviceStream
    output: Tensor

    kind: ClassVar = "HostLoad"


@dataclass(eq=False)
class HostStore:
    """A write of the next entry of a stream."""

    stream: DeviceToHostStream
    tensor: Tensor

    kind: ClassVar = "HostStore"


AnyOperation = "GraphOperation | HostLoad | HostStore | FunctionCall"


def block_of(meaning: Meaning, inputs: Sequence[Tensor]) -> OpBlock:
    """The meaning of an op for inputs of these types, as a block."""
    net = NetworkBuilder()
    values = [net.input(t.shape, t.dtype.element, t.name) for t in inputs]
    made = meaning(net, *values)
    results = [net.read(v) for v in ([made] if isinstance(made, Value) else made)]
    return OpBlock(tuple(values), tuple(needed(net.ops, results)), tuple(results))


class Graph:
    """Ops in order, with inputs and outputs.

    Attributes:
        ir: Ir that it is of.
        name: Its name, unique in the Ir.
        inputs: Tensors that enter.
        outputs: Tensors that leave.
    """

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
    ) -> tuple[Tensor, ...]:
        """Append an op, and give what it makes.

        Args:
            kind: Name of the op.
            meaning: Function that makes the values of the outputs.
            inputs: Tensors that it reads.
            modifies: Numbers of inputs that it changes: their values are the last results of ``meaning``.
            name: Name of the outputs.
            kinds: Types of the outputs on the host, where they are not those of the device.
        """
        for number, tensor in enumerate(inputs):
            self.check_here(tensor, f"number {number}")
        place = Place(ipu=_current.ipu)
        block = block_of(meaning, inputs)
        count = len(block.results) - len(modifies)
        outputs = [
            Tensor(self, name or f"{kind}_out", v.shape, kinds[n] if kinds else of_element(v.dtype), ipu=_current.ipu)
            for n, v in enumerate(block.results[:count])
        ]
        self.add(
            GraphOperation(kind, tuple(inputs), outputs, block, tuple(modifies), origin=_origin(kind), place=place)
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
        return Tensor(self, name or f"{kind}_out", target.shape, target.dtype, ipu=target.ipu, alias=Alias(target))

    def view(self, kind: str, read: Meaning, write: Meaning, base: Tensor, name: str | None = None) -> Tensor:
        """Append a view of a tensor: writes through it change the tensor.

        Args:
            kind: Name of the op.
            read: The view's value, of the tensor's.
            write: The tensor's value, of it and of a new value of the view.
            base: The tensor.
            name: Name of the view.
        """
        (made,) = self.emit(kind, read, [base], name=name)
        made.alias = Alias(base, block_of(read, [base]), block_of(write, [base, made]))
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


def _origin(kind: str) -> DebugRecord:
    file, line = caller()
    return DebugRecord(kind, file=file, line=line, text="/".join((*_current.scopes, kind)) if _current.scopes else "")


# --- Ir ---------------------------------------------------------------------------------------------------------------


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
        num_host_transfers: Entries of each stream that one run has.
    """

    _count = 0

    def __init__(self, replication: int | str = 1) -> None:
        if replication not in (1, "popdist"):
            from abele.errors import UnsupportedOpError

            raise UnsupportedOpError(
                f"an Ir of {replication} replicas has no lowering yet", remedy="use one replica: popxl.Ir()"
            )
        Ir._count += 1
        self.id = Ir._count
        self._graphs: dict[str, Graph] = {}
        self._names: dict[str, int] = {}
        self.num_host_transfers = 1
        self.options = IrOptions()
        self.is_frozen = False
        self.h2d: dict[str, HostToDeviceStream] = {}
        self.d2h: dict[str, DeviceToHostStream] = {}
        self._main = Graph(self, "main")

    @property
    def main_graph(self) -> Graph:
        """The graph that a run runs."""
        return self._main

    @property
    def replication_factor(self) -> int:
        """One: there are no replicas yet."""
        return 1

    @property
    def instance_replication_factor(self) -> int:
        """One."""
        return 1

    @property
    def _pb_ir(self) -> _PrivateIr:
        return _PrivateIr(self)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """All streams from the host."""
        return set(self.h2d.values())

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """All streams to the host."""
        return set(self.d2h.values())

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs or ops."""
        base = name or "graph"
        number = self._names.get(base, 0)
        self._names[base] = number + 1
        return Graph(self, f"{base}_{number}")

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
    return graph_input(given.shape, given.dtype, name, by_ref=by_ref)


def _results(name: str, result: Any) -> list[Tensor]:
    found = [] if result is None else [result] if isinstance(result, Tensor) else result
    if not isinstance(found, list | tuple) or not all(isinstance(t, Tensor) for t in found):
        raise GraphArgumentError(f"The outputs of {name} must be tensors or None, not {result!r}")
    return list(found)


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
    "Ir",
    "Module",
    "TensorByRef",
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
