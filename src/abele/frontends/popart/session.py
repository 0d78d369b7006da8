"""``popart.InferenceSession`` and ``popart.TrainingSession``: a model compiled, its weights, and steps of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from abele.arrays import Array
from abele.errors import AbeleError, OutOfMemoryError
from abele.expr.derivative import arg
from abele.frontends.onnx.files import read_model, tensor_array
from abele.frontends.onnx.model import functions_of
from abele.frontends.onnx.notes import notes_of, place_of
from abele.frontends.onnx.reader import GraphReader, ModelParts
from abele.frontends.onnx.registry import Item
from abele.frontends.onnx.types import element_type, host_type
from abele.frontends.onnx.writing import write_model
from abele.frontends.popart.builder import BROADCAST, VARIABLE, versions_of
from abele.frontends.popart.dataflow import DataFlow, InputShapeInfo, PyStepIO, PyStepIOCallback, PyWeightsIO
from abele.frontends.popart.devices import DeviceInfo, VariableRetrievalMode, VariableSettings
from abele.frontends.popart.errors import OutOfMemoryException, as_popart, popart_exception, popart_runtime_error
from abele.frontends.popart.optimisers import Optimizer
from abele.frontends.popart.options import IrSerializationFormat, Patterns, SessionOptions
from abele.frontends.popart.settings import check_stages, locations_of, schedule_of, settings_of
from abele.frontends.popart.tensor_info import TensorInfo
from abele.frontends.popart.wide_integers import narrow, wide_types
from abele.frontends.popart_enums import ReductionType
from abele.network import Group, Network, NetworkBuilder, Sgd, Value
from abele.network.ops import build
from abele.network.schedule import Anchor, Schedule
from abele.report import Report
from abele.session import Compiled, Session, Settings, SharedArrays, compile_network
from abele.session.store import load_compiled, save_compiled

GRADIENT_PREFIX, ACCUMULATOR_PREFIX = "Gradient___", "Accum___"
_PREFIXES = (GRADIENT_PREFIX, ACCUMULATOR_PREFIX)
_SLOTS = {"Accl___": "momentum", "Accl1___": "moment1", "Accl2___": "moment2"}
STATE_PREFIXES = tuple(_SLOTS)
"""Prefixes of the names of a micro-batch's gradient, and of the sum over those of an update so far."""


class _Held:
    """A model that is read: its network, and what of it comes back.

    Attributes:
        network: The network, whose outputs are ``outputs``.
        weights: Arrays of its weights by name.
        inputs: Inputs that a step is given, by name.
        outputs: Anchored tensors that are outputs of the network.
        gradients: Weights whose gradients are anchored, by the anchor's name.
        types: NumPy's type of each anchor, as the model has it.
        shapes: Shape of each anchor.
        tensors: Names of all tensors of the model.
        groups: Weights of which groups of replicas have their own values.
        broadcast: Inputs that all replicas share.
        probes: Zeros added to tensors that are no weights, whose gradient is anchored, by the anchor's name.
        states: State of the optimiser that is anchored, by the anchor's name.
    """

    network: Network
    weights: dict[str, Array]
    inputs: dict[str, Value]
    outputs: tuple[str, ...]
    gradients: dict[str, str]
    types: dict[str, np.dtype[Any]]
    shapes: dict[str, tuple[int, ...]]
    tensors: tuple[str, ...]
    groups: dict[str, VariableSettings]
    broadcast: frozenset[str]
    probes: dict[str, Value]
    states: dict[str, str]


class BaseSession:
    """Base of both kinds of sessions.

    Attributes:
        dataFlow: Batches of a step, and what of it comes back.
        device: The device.
        options: The options.
    """

    training = False

    def __init__(
        self,
        fnModel: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
        loss: str = "",
        optimizer: Optimizer | None = None,
    ) -> None:
        self.dataFlow, self.device, self.options = dataFlow, deviceInfo, userOptions or SessionOptions()
        self.patterns, self.name = patterns or Patterns(), name
        self._check_options()
        self._proto, self._folder = _read(fnModel)
        self._infos = (inputShapeInfo or InputShapeInfo()).infos
        self._optimizer, self._loss = optimizer, loss
        if self.options.enablePipelining:
            check_stages(self._proto, dataFlow.batchesPerStep(), self.options, training=self.training)
        try:
            self._held = self._read_model()
        except AbeleError as error:
            raise as_popart(error) from None
        self.weights = SharedArrays(self._held.weights)
        self._session: Session | None = None
        self._executable: Path | None = None
        self._loaded = self._ran = False
        self._seed = 0

    def _check_options(self) -> None:
        options = self.options
        if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
            raise popart_exception(
                f"accumulationFactor is {options.accumulationFactor}, and enableGradientAccumulation is False"
            )
        if options.enableGradientAccumulation and not self.training:
            raise popart_exception("Gradient Accumulation can only be used with a training session")
        if options.enablePipelining and (self.device.numIpus < 2 or not options.virtualGraphMode):
            raise popart_exception(
                f"Pipelining requires more than 1 IPU (currently {self.device.numIpus}) and the 'virtualGraphMode' "
                "session option to not be VirtualGraphMode.Off"
            )

    # --- the model ----------------------------------------------------------------------------------------------------

    def _read_model(self) -> _Held:
        graph, net = self._proto.graph, NetworkBuilder()
        groups = {name: VariableSettings.of_text(text) for name, text in _metadata(self._proto, VARIABLE).items()}
        parts = ModelParts(
            self._folder,
            versions_of(self._proto),
            functions_of(self._proto),
            training=self.training,
            placed=bool(self.options.virtualGraphMode),
            replicas=self.replicationFactor,
            untrained=frozenset(t.name for t in graph.initializer if t.name in groups and not _is_float(t)),
        )
        reader = GraphReader(net, parts, parts.opsets)
        reader.initialisers(graph)
        held = _Held()
        held.inputs, held.groups = {}, groups
        held.broadcast = frozenset(_metadata(self._proto, BROADCAST))
        rows = {name: self._one_of_groups(reader, name) for name in groups if name in reader.items}
        for declared in graph.input:
            if declared.name not in reader.items:
                held.inputs[declared.name] = self._enter(reader, declared)
        anchors = self.dataFlow.anchors()
        self._read_nodes(reader, graph, held)
        if parts.missing:
            lines = dict.fromkeys(f"{e.message}" for e in parts.missing)
            raise popart_exception(
                "The model has operators without a lowering", because="\n".join(lines), remedy="docs/onnx_operators.md"
            )
        names = [name for name in anchors if not name.startswith((*_PREFIXES, *STATE_PREFIXES))]
        for name in names:
            if name not in reader.items:
                raise popart_exception(f"Anchor tensor `{name}' not in Ir Tensors.")
        values = {name: reader.value(reader.items[name]) for name in names}
        loss = self._loss_of(reader) if self.training else None
        for name in names:
            net.output(values[name])
        if loss is not None:
            net.loss = loss
        held.network = net.finish()
        held.weights = parts.weights | {name: array for name, array in rows.items() if name in parts.weights}
        held.weights |= {value.name: np.zeros(value.shape, value.dtype.np) for value in held.probes.values()}
        held.outputs = tuple(names)
        held.gradients, held.states = {}, {}
        known = {v.name: v for v in held.network.parameters}
        held.shapes = {name: values[name].shape for name in names}
        wide = wide_types(self._proto)
        held.types = {name: wide.get(name) or reader.items[name].dtype for name in names}
        for name in anchors:
            if name.startswith(STATE_PREFIXES):
                self._state_of(name, held, known)
            elif name.startswith(_PREFIXES):
                weight = name.removeprefix(GRADIENT_PREFIX).removeprefix(ACCUMULATOR_PREFIX)
                if name in held.probes:
                    weight = held.probes[name].name
                if weight not in known or not self.training:
                    raise popart_exception(f"Anchor tensor `{name}' not in Ir Tensors.")
                held.gradients[name] = weight
                held.shapes[name], held.types[name] = known[weight].shape, known[weight].dtype.np
        held.tensors = tuple(reader.items)
        return held

    def _one_of_groups(self, reader: GraphReader, name: str) -> Array:
        """Rows of a weight for the session; the network has the shape of one."""
        item, settings = reader.items[name], _metadata(self._proto, VARIABLE)[name]
        assert item.known is not None
        read = VariableSettings.of_text(settings)
        count, whole = read.getGroupCount(self.replicationFactor), np.asarray(item.known)
        several = read.has_groups
        if several and (not whole.ndim or len(whole) != count):
            raise popart_exception(
                f"the weight {name!r} has the shape {list(whole.shape)}, its replicas form {count} groups",
                remedy="a first dimension with an entry for each group",
            )
        row = whole[0] if several else whole
        reader.items[name] = replace(item, shape=row.shape, known=row, weight=True, fixed=False)
        if read.mode == VariableRetrievalMode.AllReduceReplicas:
            raise popart_exception(
                f"the weight {name!r} comes back reduced over replicas, which is not done here",
                remedy="VariableRetrievalMode.AllReplicas, and a sum on the host",
            )
        if read.mode != VariableRetrievalMode.AllReplicas:
            return whole
        rows = whole if several else whole[None]
        number = np.empty(self.replicationFactor, np.intp)
        for group, members in enumerate(read.groups(self.replicationFactor)):
            number[members] = group
        return np.ascontiguousarray(rows[number])

    def _read_nodes(self, reader: GraphReader, graph: onnx.GraphProto, held: _Held) -> None:
        """Read nodes; what has its gradient anchored, and is no weight, is read with zeros added that have the same."""
        held.probes = {}
        weights = {t.name for t in graph.initializer}
        names = [name for name in self.dataFlow.anchors() if name.startswith(GRADIENT_PREFIX) and self.training]
        wanted = {name.removeprefix(GRADIENT_PREFIX): name for name in names}
        wanted = {tensor: name for tensor, name in wanted.items() if tensor not in weights}
        for tensor in [t for t in wanted if t in held.inputs]:
            self._probe(reader, held, tensor, wanted[tensor])
        for node in graph.node:
            reader.node(node)
            for tensor in [t for t in node.output if t in wanted]:
                around = reader.net.place
                place = place_of(notes_of(node), around) if reader.parts.placed else None
                with reader.net.at(place=place):
                    self._probe(reader, held, tensor, wanted[tensor])

    @staticmethod
    def _probe(reader: GraphReader, held: _Held, tensor: str, anchor: str) -> None:
        item = reader.items[tensor]
        if item.dtype.kind != "f":
            raise popart_exception(f"Anchor tensor `{anchor}' not in Ir Tensors.", because=f"{tensor!r} has no floats")
        value = reader.value(item)
        zeros = held.probes[anchor] = reader.net.root.parameter(value.shape, value.dtype, f"{anchor}/zeros")
        reader.items[tensor] = replace(
            item, value=build.map_(reader.net, arg(0) + arg(1), [value, zeros]), known=None, fixed=False
        )

    def _state_of(self, name: str, held: _Held, known: Mapping[str, Value]) -> None:
        """Look up what an anchor means of the optimiser's state: it is read after a step."""
        prefix = next(p for p in STATE_PREFIXES if name.startswith(p))
        weight = name.removeprefix(prefix)
        b, a, _ = self._sizes
        if weight not in known or self._optimizer is None:
            raise popart_exception(f"Anchor tensor `{name}' not in Ir Tensors.")
        if self.dataFlow.art(name).id() != "Final" and b * a > 1:
            raise popart_exception(
                f"the anchor {name!r} is state of the optimiser, which comes back after the last micro-batch alone",
                remedy=f"AnchorReturnType('Final'), of {name!r}",
            )
        held.states[name] = f"{weight}/{_SLOTS[prefix]}"
        held.shapes[name], held.types[name] = known[weight].shape, np.dtype(np.float32)

    def _enter(self, reader: GraphReader, declared: onnx.ValueInfoProto) -> Value:
        kind = declared.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or -1 for d in kind.shape.dim]
        given = self._infos.get(declared.name)
        unknown = next((d for d in dims if isinstance(d, str) or d < 0), None)
        if unknown is not None and given is None:
            shown = ", ".join(map(str, dims))
            raise popart_exception(
                f"Input tensor '{declared.name}' must be specified in InputShapeInfo, as it has shape [{shown}], which "
                f"uses an unknown value '{unknown}'."
            )
        shape = tuple(int(n) for n in (given.shape() if given is not None and unknown is not None else dims))
        value = reader.net.root.input(shape, element_type(kind.elem_type), declared.name)
        reader.items[declared.name] = Item(declared.name, shape, host_type(kind.elem_type), value=value)
        return value

    def _loss_of(self, reader: GraphReader) -> Value:
        if self._loss not in reader.items:
            raise popart_exception(f"Could not find loss tensor '{self._loss}' in main graph tensors")
        value = reader.value(reader.items[self._loss])
        if value.size != 1:
            raise popart_exception(f"Loss tensor, '{self._loss}', must be a scalar tensor, it has {list(value.shape)}")
        return value

    # --- compiling ----------------------------------------------------------------------------------------------------

    @property
    def replicationFactor(self) -> int:
        """Replicas."""
        return self.options.replicas

    @property
    def accumulationFactor(self) -> int:
        """Micro-batches of an update."""
        return self.options.micro_batches if self.training else 1

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.dataFlow.batchesPerStep(), self.accumulationFactor, self.replicationFactor

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile the model.

        Raises:
            OutOfMemoryException: It does not fit on the machine.
        """
        held = self._held
        anchors = tuple(Anchor(f"gradient/{weight}") for weight in held.gradients.values())
        schedule = replace(
            schedule_of(self.options, *self._sizes, training=self.training),
            anchors=anchors,
            locations=locations_of(self.options),
            own_values=tuple((n, g.replicas_together) for n, g in held.groups.items() if g.has_groups),
            every_replica=tuple(n for n, g in held.groups.items() if g.mode == VariableRetrievalMode.AllReplicas),
        )
        groups = None
        if self._optimizer is not None:
            groups = self._rules(self._optimizer)
        settings = settings_of(self.options, self.device, self.name)
        try:
            if self._executable is not None:
                compiled = self._from_file(self._executable, schedule, settings, groups)
            else:
                compiled = compile_network(held.network, schedule, groups=groups, settings=settings)
        except OutOfMemoryError as error:
            raise OutOfMemoryException(error.message, at=error.at, because=error.because, remedy=error.remedy) from None
        except AbeleError as error:
            raise as_popart(error) from None
        if not held.network.outputs and not anchors and not self.training:
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        self._session = Session(compiled, weights=self.weights, seed=self._seed)

    def _from_file(
        self, path: Path, schedule: Schedule, settings: Settings, groups: Sequence[Group] | None
    ) -> Compiled:
        optimisers = None if groups is None else [group.optimiser for group in groups]
        compiled, network = load_compiled(path, schedule, settings, optimisers, trusted=True)
        if str(network) != str(self._held.network):
            raise popart_exception(
                f"the executable {str(path)!r} is of another model than this session", remedy="compile this one"
            )
        return compiled

    def saveExecutable(self, path: str | os.PathLike[str], savePopartMetadata: bool = True, **more: bool) -> None:
        """Write the compiled program to a file.

        Raises:
            popart_exception: The session was not prepared.
        """
        session = self._prepared("saveExecutable()")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_compiled(session.compiled, self._held.network, Path(path))

    def compileAndExport(self, filename: str | os.PathLike[str]) -> None:
        """Compile, and write the program to a file."""
        if self._session is None:
            self.prepareDevice(loadEngine=False)
        self.saveExecutable(filename)

    def loadExecutable(self, filename: str | os.PathLike[str]) -> None:
        """Let :meth:`prepareDevice` take the program from a file, in place of compiling.

        Raises:
            popart_exception: There is no such file.
        """
        if not Path(filename).is_file():
            raise popart_exception(f"there is no executable {str(filename)!r}", remedy="saveExecutable(path)")
        self._executable = Path(filename)

    def getSerializedGraph(self) -> bytes:
        """The network that is compiled, as text in bytes."""
        return str(self._held.network).encode()

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """Operators of the model as JSON: ``{"maingraph": [{"name", "type", "inputs", "outputs", "attributes"}]}``."""
        nodes = [
            {
                "name": node.name,
                "type": node.op_type,
                "domain": node.domain or "ai.onnx",
                "inputs": list(node.input),
                "outputs": list(node.output),
                "attributes": {a.name: str(helper.get_attribute_value(a)) for a in node.attribute},
            }
            for node in self._proto.graph.node
        ]
        return json.dumps({"maingraph": nodes})

    def _rules(self, optimizer: Optimizer) -> list[Group]:
        """Rules of the weights; zeros that stand for gradients stay zeros."""
        held = self._held
        zeros = {value.name for value in held.probes.values()}
        weights = {v.name: v for v in held.network.parameters if v.name not in zeros}
        rules = optimizer.rules(weights)
        probes = tuple(v for v in held.network.parameters if v.name in zeros)
        if probes and optimizer.clips:
            raise popart_exception(
                "gradients of tensors that are no weights are not anchored where norms of gradients are clipped",
                remedy="leave clip_norm_settings out, or anchor gradients of weights",
            )
        still = Sgd(lr=0.0, variable=frozenset(), loss_scaling=optimizer.getLossScalingVal())
        return [*rules, Group(still, probes)] if probes else rules

    def _prepared(self, what: str) -> Session:
        if self._session is None:
            raise popart_exception(f"Devicex::prepare() must be called before {what} is called.")
        return self._session

    def loadEngineAndConnectStreams(self) -> None:
        """Load the program, which the first step does by itself."""
        self._prepared("Devicex::loadEngineAndConnectStreams()")

    @property
    def report(self) -> Report:
        """Cost of the program on the machine, and of its runs on the host."""
        return self._prepared("getReport").report

    def getReport(self) -> Any:
        """The report under libpva's names.

        Raises:
            popart_exception: The session was not prepared.
        """
        if self._session is None:
            raise popart_exception("Session must have been prepared before a report can be fetched")
        from abele import pva

        return pva.Report(self._session.report)

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """The report in words."""
        if self._session is None:
            raise popart_exception("Session must have been prepared before a report can be fetched")
        return self._session.report.summary()

    def getCycleCount(self, id: str = "") -> int:
        """Cycles of a step.

        Raises:
            popart_exception: No step has run, or cycles are not counted.
        """
        if not self.options.instrumentWithHardwareCycleCounter:
            raise popart_exception("SessionOption 'instrumentWithHardwareCycleCounter' must be set to true")
        if not self._ran:
            raise popart_exception("Must call run before getCycleCount")
        return int(self.report.total_cycles)

    # --- weights ------------------------------------------------------------------------------------------------------

    def weightsFromHost(self) -> None:
        """Send weights to the device."""
        session = self._prepared("Devicex::weightsFromHost()")
        if self._loaded:
            session.upload()
        self._loaded = True

    def weightsToHost(self) -> None:
        """Bring weights from the device."""
        self._prepared("Devicex::weightsToHost()").bring_to_host()

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy weights of the host into arrays."""
        self._prepared("Devicex::readWeights()")
        for name, array in weightsIo.weights.items():
            if name not in self.weights:
                raise popart_exception(f"there is no weight {name!r} to be read")
            np.copyto(array, np.asarray(self.weights[name]).reshape(np.shape(array)))

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy arrays into the weights of the host, which :meth:`weightsFromHost` sends."""
        if not self.training and self.options.constantWeights:
            raise popart_exception("Cannot call writeWeights when constantWeights is set")
        for name, array in weightsIo.weights.items():
            if name not in self.weights:
                raise popart_exception(f"there is no weight {name!r} to be written")
            held = np.asarray(self.weights[name])
            self.weights[name] = np.asarray(array, held.dtype).reshape(held.shape)

    def resetHostWeights(
        self, model: bytes | str, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Let weights of the host be those of a model.

        Raises:
            popart_exception: They are constants, or the model has others.
        """
        if not self.training and self.options.constantWeights:
            raise popart_exception("Cannot call resetHostWeights when constantWeights is set")
        proto, folder = _read(model)
        for tensor in proto.graph.initializer:
            if tensor.name in self.weights:
                self.weights[tensor.name] = tensor_array(tensor, folder)
            elif not ignoreWeightsInModelWithoutCorrespondingHostWeight:
                raise popart_exception(f"the session has no weight {tensor.name!r}, which the model has")

    def modelToHost(self, filename: str | os.PathLike[str]) -> None:
        """Write the model with the weights that it has now."""
        self._prepared("Devicex::weightsToHost()").bring_to_host()
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        for tensor in proto.graph.initializer:
            if tensor.name in self.weights:
                array = np.asarray(self.weights[tensor.name]).astype(host_type(tensor.data_type))
                settings = self._held.groups.get(tensor.name)
                if settings is not None and array.size != int(np.prod(tensor.dims)):
                    # A row for each replica came back, the model has one for each group.
                    array = array[[members[0] for members in settings.groups(self.replicationFactor)]]
                tensor.CopyFrom(numpy_helper.from_array(array.reshape(tuple(tensor.dims)), tensor.name))
        write_model(proto, Path(filename))

    # --- steps --------------------------------------------------------------------------------------------------------

    def initAnchorArrays(self) -> dict[str, Array]:
        """Arrays for what comes back of a step, by name."""
        held = self._held
        return {
            name: np.zeros(self.dataFlow.shape(name, *self._sizes, held.shapes[name]), held.types[name])
            for name in self.dataFlow.anchors()
        }

    def run(self, *given: Any, **named: Any) -> None:
        """Run a step.

        Args:
            *given: A :class:`PyStepIO` or a :class:`PyStepIOCallback`; a name of the step may follow.
            **named: ``stepio`` and ``debugName``.

        Raises:
            popart_exception: Weights were not sent, or an input is none of the model's.
            popart_runtime_error: An array has another number of elements.
        """
        stepio = named.get("stepio") or next(g for g in given if isinstance(g, (PyStepIO, PyStepIOCallback)))
        session = self._prepared("Devicex::run()")
        if self._held.weights and not self._loaded:
            raise popart_exception(
                "Must call weightsFromHost before run as the model has initializers (or the session has been "
                "created in training mode)"
            )
        if session.compiled.settings.synthetic_data:
            session.run([])  # The machine makes its own inputs, and sends nothing.
            self._ran = True
            return
        arrays = self._from_callback(stepio) if isinstance(stepio, PyStepIOCallback) else self._from_arrays(stepio)
        results = session.run(arrays)
        self._ran = True
        made = dict(zip(self._held.outputs, results.outputs, strict=True))
        made |= {
            name: self._alone(np.asarray(values), self._held.shapes[name])
            if name.startswith(GRADIENT_PREFIX)
            else values
            for name, values in zip(self._held.gradients, results.anchors, strict=True)
        }
        if self._held.states:
            made |= {name: self._state_now(session, slot) for name, slot in self._held.states.items()}
        self._give(stepio, made)

    def _state_now(self, session: Session, slot: str) -> Array:
        if slot not in session.state:
            raise popart_exception(
                f"the optimiser has no state {slot!r}", remedy=f"it has {', '.join(map(str, session.state))}"
            )
        return np.asarray(session.state[slot])

    def _from_arrays(self, stepio: PyStepIO) -> list[Array]:
        inputs = self._held.inputs
        for name in stepio.inputs:
            if name not in inputs and name not in self._held.tensors:
                raise popart_exception(
                    f"The tensor '{name}' has been provided as one of the inputs to the stepIO, but it is not "
                    "registered as one of the inputs to the model. Please check your stepIO inputs."
                )
        b, a, r = self._sizes
        arrays = []
        for name, value in inputs.items():
            if name not in stepio.inputs:
                raise popart_exception(f"No input for the tensor '{name}' was provided to the stepIO")
            array, copies = stepio.inputs[name], r if name in self._held.broadcast else 1
            count = b * a * r // copies
            if array.size != count * value.size and not (stepio.checks is False and array.size > count * value.size):
                raise popart_runtime_error(
                    f"Unexpected number of input elements for Tensor {name}. Expected {count * value.size}, but "
                    f"received {array.size}"
                )
            array = narrow(name, array.reshape(-1)[: count * value.size])
            if copies > 1:
                array = np.repeat(array.reshape(b * a, value.size), copies, axis=0)
            arrays.append(self._shaped(array, value, b * a * r))
        return arrays

    @staticmethod
    def _shaped(array: Array, value: Value, count: int) -> Array:
        """Micro-batches one after the other along the first dimension."""
        if not value.shape:
            return array.reshape((count,) if count > 1 else ())
        return array.reshape((count * value.shape[0], *value.shape[1:]))

    def _from_callback(self, stepio: PyStepIOCallback) -> list[Array]:
        b, a, r = self._sizes
        count, arrays = b * a * r, []
        for name, value in self._held.inputs.items():
            rows: list[Array] = []
            for number in range(count):
                if number % r and name in self._held.broadcast:
                    rows.append(rows[-1])
                    continue
                given = stepio.give(name, False)
                if given is None:
                    raise popart_runtime_error(f"the input callback gave nothing for the tensor {name}")
                rows.append(narrow(name, np.array(given)).reshape(value.shape))
                stepio.given(name)
            arrays.append(self._shaped(np.stack(rows), value, count))
        return arrays

    def _give(self, stepio: PyStepIO | PyStepIOCallback, made: Mapping[str, Array]) -> None:
        b, a, r = self._sizes
        for name, values in made.items():
            own = self._held.shapes[name]
            rows = (
                np.asarray(values).reshape(b * a * r, *own)
                if np.size(values) == b * a * r * int(np.prod(own))
                else self._spread(np.asarray(values), own)
            )
            if isinstance(stepio, PyStepIOCallback):
                for row in self.dataFlow.chosen(name, rows, b, a, r).reshape(-1, *own):
                    target = stepio.take(name)
                    np.copyto(target, row.reshape(np.shape(target)))
                    stepio.taken(name)
                continue
            if name not in stepio.outputs:
                continue
            picked = self.dataFlow.chosen(name, rows, b, a, r)
            target = stepio.outputs[name]
            if np.size(target) != picked.size:
                raise popart_runtime_error(
                    f"Unexpected number of output elements for Tensor {name}. Expected {picked.size}, but received "
                    f"{np.size(target)}"
                )
            np.copyto(target, picked.reshape(np.shape(target)), casting="unsafe")

    def _alone(self, sums: Array, own: Sequence[int]) -> Array:
        """Gradients of single micro-batches, of the sums over those of an update so far."""
        b, a, r = self._sizes
        if a == 1:
            return sums
        wide = sums.reshape(b, a, r, *own)
        share = a * r if self.options.accumulationAndReplicationReductionType == ReductionType.Mean else 1
        before = np.concatenate([np.zeros_like(wide[:, :1]), wide[:, :-1]], axis=1)
        return np.asarray((wide - before) * share, sums.dtype)

    def _spread(self, values: Array, own: Sequence[int]) -> Array:
        """Values of which replicas have the same, for each of them."""
        b, a, r = self._sizes
        rows = values.reshape(-1, *own)
        return np.repeat(rows, b * a * r // len(rows), axis=0)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of an anchor, an input or a weight."""
        held = self._held
        if id in held.shapes:
            return TensorInfo(held.types[id], held.shapes[id])
        if id in held.inputs:
            return TensorInfo(held.inputs[id].dtype.np, held.inputs[id].shape)
        if id in held.weights:
            return TensorInfo(held.weights[id].dtype, held.weights[id].shape)
        raise popart_exception(f"there is no tensor {id!r}")

    def getAllTensorIds(self) -> list[str]:
        """Names of all tensors."""
        return list(self._held.tensors)

    getTensorIds = getAllTensorIds  # noqa: N815

    def setRandomSeed(self, seed: int) -> None:
        """Let random numbers follow from a seed."""
        self._seed = int(seed)
        if self._session is not None:
            self._session.random_state = [self._seed & 0xFFFFFFFF, self._seed >> 32 & 0xFFFFFFFF]

    def getRandomSeed(self) -> int:
        """The seed of random numbers."""
        return self._seed

    def getRNGState(self) -> list[int]:
        """State of the random numbers."""
        return list(self._prepared("getRNGState()").random_state)

    def setRNGState(self, state: Sequence[int]) -> None:
        """Let random numbers go on from a state."""
        self._prepared("setRNGState()").random_state = list(state)

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Let data of weights that lie in one file be read from another."""
        for tensor in self._proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location" and entry.value == fromLocation:
                    entry.value = toLocation


class InferenceSession(BaseSession):
    """A model that is run.

    Raises:
        popart_exception: The model, its anchors or the options are wrong.
    """

    def __init__(
        self,
        fnModel: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ) -> None:
        if not dataFlow.nAnchors():
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name=name)


class TrainingSession(BaseSession):
    """A model that is trained: derivatives of its loss change every weight of floats that has one.

    Raises:
        popart_exception: The model, its loss, its anchors or the options are wrong.
    """

    training = True

    def __init__(
        self,
        fnModel: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ) -> None:
        super().__init__(
            fnModel,
            dataFlow,
            deviceInfo,
            inputShapeInfo,
            patterns,
            userOptions,
            name=name,
            loss=loss,
            optimizer=optimizer,
        )

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Use other numbers from the next step on.

        Raises:
            popart_exception: Another kind of optimiser, or constants that changed.
        """
        assert self._optimizer is not None
        self._optimizer.check_replacement(optimizer)
        self._optimizer = optimizer
        session = self._session
        if session is not None and session.optimisers is not None:
            session.replace_optimisers([group.optimiser for group in self._rules(optimizer)])


def _read(source: bytes | str | os.PathLike[str]) -> tuple[onnx.ModelProto, Path | None]:
    try:
        return read_model(source)
    except AbeleError as error:
        if isinstance(source, bytes):
            raise popart_exception(f"Failed to load a ModelProto from the string: {error.message}") from None
        raise popart_exception(
            f"Failed to load the model {str(source)!r}: {error.message}. Check that it is either a valid path to an "
            "existing onnx model file, or the bytes of one"
        ) from None


def _metadata(proto: onnx.ModelProto, prefix: str) -> dict[str, str]:
    """Entries of a model's metadata for tensors, by name, under a prefix."""
    return {e.key.removeprefix(prefix): e.value for e in proto.metadata_props if e.key.startswith(prefix)}


def _is_float(tensor: onnx.TensorProto) -> bool:
    return host_type(tensor.data_type).kind == "f"
