"""``abele.onnx.load``: a model of a file, compiled for the machine that Abele models and run on this computer."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from abele.arrays import Array
from abele.errors import AbeleError, SignatureError, UnsupportedOpError, nearest
from abele.frontends.onnx import ops as _ops  # noqa: F401  (registers the handlers)
from abele.frontends.onnx.errors import ModelError, ModelShapeError
from abele.frontends.onnx.files import OLDEST, Source, file_name, read_model
from abele.frontends.onnx.reader import GraphReader, ModelParts
from abele.frontends.onnx.registry import STANDARD, Item, domain_of
from abele.frontends.onnx.types import check_size, element_type, host_type, type_name
from abele.machine import System
from abele.network import Network, NetworkBuilder, Optimiser, Place, Schedule
from abele.report import Report
from abele.session import Session, Settings, SharedArrays, compile_network

if TYPE_CHECKING:
    from abele.frontends.onnx.training import Loss, ModelTraining

Shapes = Mapping[str, int | Sequence[int]]


@dataclass(frozen=True)
class ModelPort:
    """An input or a result of a model.

    Attributes:
        name: Its name.
        shape: Its shape, with all dimensions bound.
        dtype: NumPy's type of it, as the model has it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def size(self) -> int:
        """Number of elements; of none nothing is sent."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"


def load(
    source: Source,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    stages: Mapping[str, int] | None = None,
) -> Model:
    """A model of a file, as a network.

    Args:
        source: A path, the bytes of a file, or a model. Data that lies in further files is read from the model's own
            folder alone.
        shapes: For inputs whose shapes the model leaves open, a shape by the input's name, or an extent by the
            dimension's name: ``{"input_ids": (1, 128)}`` or ``{"batch": 1, "sequence": 128}``.
        values: Inputs that are the same in all runs, such as a shape or a number of elements to pick: they are no
            inputs any more.
        stages: Tensors whose nodes begin a stage of a pipeline, with the IPU of that stage, in the order of the nodes;
            what is before is on IPU 0. :func:`~abele.frontends.onnx.fitting.fit` finds them.

    Raises:
        ModelFileError: It is no ONNX model, or its data is not there.
        ModelError: It says something impossible, or no node makes a tensor that begins a stage.
        ModelShapeError: An open dimension was not bound, or elements that give a shape are not known.
        UnsupportedOpError: Nodes without a lowering; the error names all of them.
    """
    proto, folder = read_model(source)
    try:
        return Model(proto, folder, shapes or {}, values or {}, stages or {}, file_name(source))
    except AbeleError:
        raise
    except Exception as error:
        # A file may hold anything, such as names that are no text.
        raise ModelError(
            f"the model cannot be read: {type(error).__name__}: {error}",
            remedy="onnx.checker.check_model(model, full_check=True) shows more",
        ) from error


class Model:
    """An ONNX model.

    Attributes:
        proto: The model as ONNX has it.
        name: Name of its graph.
        inputs: Its inputs, but for those that initialisers have a value for.
        outputs: Its results.
        network: It as a network.
        weights: Its parameters by name, which sessions share and change; and those that are computed of them.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path | None,
        shapes: Shapes,
        values: Mapping[str, Any],
        stages: Mapping[str, int] | None = None,
        file: str = "",
    ) -> None:
        _check_versions(proto)
        self.proto, self._folder = proto, folder
        self.name = proto.graph.name or "model"
        self._file = file or self.name
        self._values = _held(proto.graph, values)
        self._shapes = bound_shapes(proto.graph, shapes, frozenset(self._values))
        self._stages = _places(proto.graph, stages or {})
        self._prepared: dict[str, Item] = {}
        self._seen: tuple[int, ...] = ()
        self.inputs, self.outputs, self.network, kept = self.read()
        self.weights = SharedArrays(kept)
        self._settings = Settings(name=self.name)
        self._session: Session | None = None

    @property
    def settings(self) -> Settings:
        """Settings of its sessions."""
        return self._settings

    @property
    def opset(self) -> int:
        """Version of the standard operators."""
        return versions(self.proto)[STANDARD]

    def read(
        self,
        proto: onnx.ModelProto | None = None,
        *,
        training: bool = False,
        untrained: frozenset[str] = frozenset(),
        extra: Sequence[str] = (),
        begins: list[tuple[int, str]] | None = None,
    ) -> tuple[tuple[ModelPort, ...], tuple[ModelPort, ...], Network, dict[str, Array]]:
        """Inputs, results, the network and its weights.

        Args:
            proto: The model with nodes and inputs after it, which says their shapes; as it is, if left out.
            training: Let nodes mean what they mean in training.
            untrained: Initialisers that stay as they are in training.
            extra: Tensors that are results of the network as well.
            begins: Takes the number of ops before each node, and the first tensor that the node makes.
        """
        given = proto or self.proto
        graph, net = given.graph, NetworkBuilder()
        shapes = self._shapes if proto is None else bound_shapes(graph, self._shapes, frozenset(self._values))
        parts = ModelParts(
            self._folder,
            versions(given),
            functions_of(given),
            file=self._file,
            training=training,
            untrained=untrained,
            prepares=not training,
            stages=self._stages,
            begins=[] if begins is None else begins,
        )
        parts.most_nodes += 16 * sum(self.operators.values())
        reader = GraphReader(net, parts, parts.opsets)
        reader.initialisers(graph)
        ports = []
        for name, array in self._values.items():
            reader.items[name] = reader.known(name, array)
        for declared in graph.input:
            if declared.name not in reader.items:
                ports.append(self._enter(reader, declared, shapes))
        reader.nodes(graph.node)
        if parts.missing:
            raise _all_missing(parts.missing)
        results = []
        for declared in graph.output:
            item = reader.item(declared.name)
            results.append(_result(declared, item))
            if results[-1].size:
                net.output(reader.value(item))
        for value in parts.effects:
            net.output(value)
        for name in extra:
            net.output(reader.value(reader.item(name)))
        if not training:
            self._prepared = parts.prepared
        return tuple(ports), tuple(results), net.finish(), parts.weights

    @staticmethod
    def _enter(reader: GraphReader, declared: onnx.ValueInfoProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelPort:
        kind = declared.type.tensor_type
        code = kind.elem_type
        if not declared.type.HasField("tensor_type") or not code:
            raise ModelError(
                f"the input {declared.name!r} is no tensor", remedy="cut the sequences and optionals off the model"
            )
        shape = shapes[declared.name]
        port = ModelPort(declared.name, shape, host_type(code))
        if not port.size:
            # Nothing would be sent: it is known already.
            reader.items[declared.name] = reader.known(declared.name, np.zeros(shape, port.dtype))
            return port
        value = reader.net.root.input(shape, element_type(code), declared.name)
        reader.items[declared.name] = Item(declared.name, shape, host_type(code), value=value)
        return port

    # --- running ------------------------------------------------------------------------------------------------------

    def configure(self, system: System | str | None = None, **settings: Any) -> Model:
        """This model with settings of later runs: the machine, and those of :class:`~abele.session.Settings`.

        Raises:
            InvalidOptionError: There is no such setting, or not with that value.
        """
        given = {**settings, **({} if system is None else {"system": system})}
        self._settings = replace(self._settings, **given)
        if self._session is not None:
            self._session.close()
            self._session = None
        return self

    def session(self, schedule: Schedule | None = None, *, settings: Settings | None = None) -> Session:
        """A session of the model, which shares its weights."""
        self._prepare()
        compiled = compile_network(self.network, schedule, settings=settings or self._settings)
        return Session(compiled, weights=self.weights)

    def infer(self, *arrays: Any, **named: Any) -> dict[str, Array]:
        """Results by name.

        Args:
            *arrays: The inputs in order; or one mapping of them by name.
            **named: Inputs by name.

        Raises:
            SignatureError: Inputs that differ in number, name, shape or type from the model's.
        """
        return self._run(by_name(self.name, self.inputs, arrays, named))

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Array]:
        """Results as ``onnxruntime.InferenceSession.run`` gives them: a list, of all outputs or of those named.

        Raises:
            SignatureError: There is no such output; or as for :meth:`infer`.
        """
        made = self._run(feeds)
        for name in outputs or ():
            if name not in made:
                raise SignatureError(
                    f"{self.name} has no output {name!r}, it has {', '.join(map(repr, made))}",
                    remedy=_closest(name, list(made)),
                )
        return [made[name] for name in outputs or made]

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        arrays = converted(self.name, self.inputs, feeds)
        if not self.network.outputs:
            return received(self.outputs, ())
        self._prepare()
        if self._session is None:
            self._session = self.session()
        return received(self.outputs, self._session.run(arrays).outputs)

    def _prepare(self) -> None:
        """Compute prepared weights anew, if those that they are made of have changed."""
        if not self._prepared:
            return
        cells = [self.weights.cell(name) for name in self.weights if name not in self._prepared]
        for cell in cells:
            cell.bring_up_to_date()
        seen = tuple(cell.version for cell in cells)
        if seen == self._seen or not (any(seen) or self._seen):
            return
        self._seen = seen

        def elements(item: Item) -> Array:
            if item.recipe is not None:
                return item.recipe(elements)
            if item.weight and item.name in self.weights:
                return self.weights[item.name].astype(item.dtype, copy=False)
            assert item.known is not None
            return item.known

        for name, item in self._prepared.items():
            self.weights[name] = elements(item)

    @property
    def report(self) -> Report:
        """Cost of the model on the machine, and of its runs on the host if there were any."""
        if self._session is None:
            self._session = self.session()
        return self._session.report

    # --- training and files -------------------------------------------------------------------------------------------

    def train(
        self, loss: str | Loss | None = None, optimizer: Optimiser | None = None, **options: Any
    ) -> ModelTraining:
        """The model with what trains it; see :class:`~abele.frontends.onnx.training.ModelTraining`."""
        from abele.frontends.onnx.training import ModelTraining

        return ModelTraining(self, loss, optimizer, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with the weights that it has now."""
        from abele.frontends.onnx.writing import with_weights, write_model

        write_model(with_weights(self.proto, self.weights, self._folder), Path(path))

    @cached_property
    def operators(self) -> dict[str, int]:
        """Number of nodes of each operator, those of graphs inside included."""
        from abele.frontends.onnx.support import count_operators

        return count_operators(self.proto)

    def __repr__(self) -> str:
        ports = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"Model({self.name!r}: {ports[0]} → {ports[1]})"


# --- what a model says of itself --------------------------------------------------------------------------------------


def versions(proto: onnx.ModelProto) -> dict[str, int]:
    """Version of the operators of each domain.

    Raises:
        ModelError: The model names none of the standard operators.
    """
    found = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    if STANDARD not in found:
        if proto.ir_version < 3:
            return {STANDARD: 1, **found}
        raise ModelError("the model names no version of the standard operators", remedy="add it to opset_import")
    return found


def functions_of(proto: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """Functions of a model by domain, name and overload."""
    return {(f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions}


def _check_versions(proto: onnx.ModelProto) -> None:
    newest, version = onnx.defs.onnx_opset_version(), versions(proto)[STANDARD]
    if not 1 <= version <= newest:
        raise ModelError(
            f"the model is of opset {version}, the installed onnx {onnx.__version__} knows 1 to {newest}",
            remedy="pip install --upgrade onnx" if version > newest else "export the model again",
        )
    if version < OLDEST:
        warnings.warn(
            f"the model is of opset {version}; operators have other meanings since {OLDEST}, and may be read wrongly",
            stacklevel=4,
        )


def _held(graph: onnx.GraphProto, values: Mapping[str, Any]) -> dict[str, Array]:
    """Inputs that are the same in all runs, in the types of the model.

    Raises:
        ModelError: There is no such input.
    """
    kinds = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    for name in values:
        if name not in kinds:
            raise ModelError(
                f"values= names {name!r}, which is no input of the model", remedy=_closest(name, sorted(kinds))
            )
    return {n: np.asarray(v).astype(host_type(kinds[n]) if kinds[n] else None) for n, v in values.items()}


def _places(graph: onnx.GraphProto, stages: Mapping[str, int]) -> dict[str, Place]:
    """Place of each stage, by the tensor whose node it begins with.

    Raises:
        ModelError: No node of the model makes such a tensor.
    """
    made = [name for node in graph.node for name in node.output if name in stages]
    for name in stages:
        if name not in made:
            tensors = [n for node in graph.node for n in node.output]
            raise ModelError(
                f"stages= names {name!r}, which no node of the model makes", remedy=_closest(name, tensors)
            )
    return {name: Place(int(stages[name]), number) for number, name in enumerate(made, 1)}


def bound_shapes(
    graph: onnx.GraphProto, shapes: Shapes, held: frozenset[str] = frozenset()
) -> dict[str, tuple[int, ...]]:
    """Shape of each input but for those that are held, with open dimensions bound.

    Raises:
        ModelShapeError: One stays open, or was given another rank or extent than the model says.
    """
    known = held | {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = [v for v in graph.input if v.name not in known]
    names = {v.name for v in inputs}
    symbols = {d.dim_param for v in inputs for d in v.type.tensor_type.shape.dim if d.dim_param}
    for name in shapes:
        if name not in names and name not in symbols:
            raise ModelShapeError(
                f"shapes= names {name!r}, which is no input and no dimension of the model",
                because=f"inputs are {', '.join(map(repr, sorted(names)))}"
                + (f"; open dimensions {', '.join(map(repr, sorted(symbols)))}" if symbols else ""),
                remedy=_closest(name, sorted(names | symbols)),
            )
    extents: dict[str, int] = {}
    for name, extent in shapes.items():
        if name in symbols and not isinstance(extent, Sequence):
            extents[name] = int(extent)
    return {v.name: _bound(v, shapes.get(v.name), extents) for v in inputs}


def _bound(declared: onnx.ValueInfoProto, given: Any, extents: dict[str, int]) -> tuple[int, ...]:
    kind = declared.type.tensor_type
    if not kind.HasField("shape"):
        if given is None:
            raise ModelShapeError(
                f"the input {declared.name!r} has no shape", remedy=f"load(…, shapes={{{declared.name!r}: (…)}})"
            )
        return tuple(int(n) for n in given)
    dims = list(kind.shape.dim)
    shown = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
    if given is not None:
        if not isinstance(given, Sequence):
            given = (given,)
        if len(given) != len(dims):
            raise ModelShapeError(
                f"the input {declared.name!r} has {len(dims)} dimensions, {shown}; shapes= gives {list(given)}"
            )
    found: list[int] = []
    for number, dim in enumerate(dims):
        extent = int(given[number]) if given is not None else extents.get(dim.dim_param, -1)
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            if given is not None and extent != dim.dim_value:
                raise ModelShapeError(
                    f"the input {declared.name!r} is {shown}, shapes= gives {list(given)}",
                    because=f"dimension {number} is fixed in the model",
                    remedy="export the model with that dimension open, or with the shape that you need",
                )
            extent = dim.dim_value
        if extent < 0:
            example = ", ".join("1" if isinstance(n, str) else str(n) for n in shown)
            raise ModelShapeError(
                f"the input {declared.name!r} is {shown}: its open dimensions have to be bound",
                because="programs of the machine are compiled for one shape",
                remedy=f"load(…, shapes={{{declared.name!r}: ({example}{',' if len(dims) == 1 else ''})}})",
            )
        if dim.dim_param and extents.setdefault(dim.dim_param, extent) != extent:
            raise ModelShapeError(
                f"the dimension {dim.dim_param!r} is {extents[dim.dim_param]}, and {extent} in {declared.name!r}"
            )
        found.append(extent)
    check_size(f"the input {declared.name!r}", found)
    return tuple(found)


def _result(declared: onnx.ValueInfoProto, item: Item) -> ModelPort:
    kind = declared.type.tensor_type
    if declared.type.WhichOneof("value") not in (None, "tensor_type"):
        raise UnsupportedOpError(
            f"the result {declared.name!r} is a {str(declared.type.WhichOneof('value')).removesuffix('_type')}",
            remedy="return its tensors one by one",
        )
    dtype = host_type(kind.elem_type) if kind.elem_type else item.dtype
    return ModelPort(declared.name, item.shape, dtype)


def _all_missing(missing: Sequence[UnsupportedOpError]) -> UnsupportedOpError:
    lines = dict.fromkeys(f"{e.message}, {e.at}" if e.at else e.message for e in missing)
    if len(lines) == 1:
        return missing[0]
    return UnsupportedOpError(
        f"{len(lines)} nodes of the model have no lowering",
        at=missing[0].at,
        because="\n".join(lines),
        remedy="express them with operators that have one (docs/onnx_operators.md)",
    )


# --- arrays -----------------------------------------------------------------------------------------------------------


def by_name(name: str, ports: Sequence[ModelPort], arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by name: arrays in order or one mapping, and those that are named.

    Raises:
        SignatureError: There are more than inputs.
    """
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        return {**arrays[0], **named}
    if len(arrays) > len(ports):
        raise SignatureError(f"{name} has {len(ports)} inputs, got {len(arrays)}")
    return {**dict(zip((p.name for p in ports), arrays, strict=False)), **named}


def converted(name: str, ports: Sequence[ModelPort], feeds: Mapping[str, Any]) -> list[Array]:
    """Arrays that a run is sent, in order: those of inputs that have elements.

    Raises:
        SignatureError: One is missing, is none of the model's, or has another shape or type.
    """
    if len(feeds) != len(ports) or any(port.name not in feeds for port in ports):
        _check_names(name, ports, feeds)
    arrays = [_array(name, port, feeds[port.name]) for port in ports]
    return [array for array in arrays if array.size]


def _check_names(name: str, ports: Sequence[ModelPort], feeds: Mapping[str, Any]) -> None:
    """Raise unless each input is given, and nothing else."""
    known = {p.name for p in ports}
    for given in feeds:
        if given not in known:
            raise SignatureError(
                f"{name} has no input {given!r}, it takes {', '.join(map(str, ports)) or 'none'}",
                remedy=_closest(given, sorted(known)),
            )
    absent = [str(p) for p in ports if p.name not in feeds]
    if absent:
        raise SignatureError(f"{name} was not given {', '.join(absent)}")


def _array(name: str, port: ModelPort, given: Any) -> Array:
    array = np.asarray(given)
    if array.shape == port.shape and array.dtype == port.dtype and array.dtype != np.float64:
        return array
    if array.shape != port.shape:
        raise SignatureError(
            f"{name} was loaded for {port}, got {array.dtype.name}{list(array.shape)}",
            remedy=f"load(…, shapes={{{port.name!r}: {tuple(array.shape)}}}) where the model leaves the shape open",
        )
    if array.dtype == port.dtype or np.can_cast(array.dtype, port.dtype, "same_kind"):
        array = array.astype(port.dtype, copy=False)
    else:
        raise SignatureError(f"{name} takes {port}, got {array.dtype.name}{list(array.shape)}")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def received(ports: Sequence[ModelPort], arrays: Sequence[Array]) -> dict[str, Array]:
    """Results by name, in the types that the model declares; those without elements were not sent."""
    sent, made = iter(arrays), {}
    for port in ports:
        array = next(sent) if port.size else np.zeros(port.shape, port.dtype)
        made[port.name] = array if array.dtype == port.dtype else array.astype(port.dtype)
    return made


def _closest(name: str, known: Sequence[str]) -> str | None:
    close = nearest(name, known)
    return f"{close!r}" if close else None


__all__ = ["Model", "ModelPort", "Shapes", "bound_shapes", "load", "type_name"]
