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
from onnx import helper

from abele.arrays import Array
from abele.errors import AbeleError, ApplicationRuntimeError, OutOfMemoryError
from abele.frontends.onnx.files import read_model
from abele.frontends.popart.anchors import STATE_PREFIXES, TrainingAnchor, slots_of
from abele.frontends.popart.dataflow import DataFlow, InputShapeInfo, PyStepIO, PyStepIOCallback, PyWeightsIO
from abele.frontends.popart.devices import DeviceInfo, VariableRetrievalMode
from abele.frontends.popart.errors import OutOfMemoryException, as_application_error, as_popart, popart_exception
from abele.frontends.popart.host_weights import HostWeights
from abele.frontends.popart.optimisers import Optimizer
from abele.frontends.popart.options import IrSerializationFormat, SessionOptions
from abele.frontends.popart.patterns import Patterns
from abele.frontends.popart.reading import ModelReading, unknown_anchor
from abele.frontends.popart.settings import locations_of, schedule_of, settings_of
from abele.frontends.popart.step_arrays import StepArrays, StepIO
from abele.frontends.popart.tensor_info import TensorInfo
from abele.frontends.popart.validity import check_options, check_recomputation, check_stages, check_types
from abele.frontends.popart_enums import ReductionType
from abele.network import Group, Sgd
from abele.network.schedule import Anchor, Schedule
from abele.report import Report
from abele.session import Compiled, Session, Settings, SharedArrays, compile_network
from abele.session.store import load_compiled, save_compiled


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
        check_options(self.options, self.device, training=self.training)
        self._proto, self._folder = _read(fnModel)
        infos = (inputShapeInfo or InputShapeInfo()).infos
        self._optimizer = optimizer
        if self.options.enablePipelining:
            check_stages(self._proto, dataFlow.batchesPerStep(), self.options, training=self.training)
        check_recomputation(self._proto, self.options)
        try:
            self._model = ModelReading(
                self._proto, self._folder, self.options, dataFlow, infos, loss=loss if self.training else None
            ).read()
            self._slots = self._state_slots()
        except AbeleError as error:
            raise as_popart(error) from None
        for anchor in self._model.training:
            if anchor.prefix in STATE_PREFIXES and anchor.name not in self._slots:
                raise unknown_anchor(anchor.name, because="the optimizer keeps no such state of the weight")
        self._weights = HostWeights(self._model, self.replicationFactor, self._slots)
        self._weights.begin(self._proto, self._folder)
        mean = self.options.accumulationAndReplicationReductionType == ReductionType.Mean
        self._arrays = StepArrays(self._model, dataFlow, self._sizes, mean=mean)
        self._session: Session | None = None
        self._executable: Path | None = None
        self._loaded = self._ran = False
        self._seed = 0

    def _state_slots(self) -> dict[str, str]:
        """Names in the program of the optimiser's state, by PopART's."""
        if self._optimizer is None:
            return {}
        rules = self._rules(self._optimizer)
        return {
            f"{prefix}{name}": slot
            for name, weight in self._model.trained.items()
            for prefix, slot in slots_of(rules, weight).items()
        }

    def _training_anchors(self) -> tuple[list[TrainingAnchor], list[TrainingAnchor]]:
        """Anchors sent by the program, and state read by the host after the last update."""
        several = self.dataFlow.batchesPerStep() > 1
        late = [
            anchor
            for anchor in self._model.training
            if anchor.prefix in STATE_PREFIXES and (not several or self.dataFlow.art(anchor.name).id() == "Final")
        ]
        still = self._model.still
        return [a for a in self._model.training if a not in late and a.name not in still], late

    # --- compiling ----------------------------------------------------------------------------------------------------

    @property
    def replicationFactor(self) -> int:
        """Replicas."""
        return self.options.replicas

    @property
    def weights(self) -> SharedArrays:
        """Weights by name."""
        return self._weights.arrays

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
        model = self._model
        check_types(model)
        if not self.options.compileEngine:
            return
        anchors = tuple(Anchor(self._tensor_of(anchor)) for anchor in self._training_anchors()[0])
        schedule = replace(
            schedule_of(self.options, *self._sizes, training=self.training),
            anchors=anchors,
            locations=locations_of(self.options),
            own_values=tuple((n, g.replicas_together) for n, g in model.groups.items() if g.has_groups),
            every_replica=tuple(n for n, g in model.groups.items() if g.mode == VariableRetrievalMode.AllReplicas),
        )
        groups = None
        if self._optimizer is not None:
            groups = self._rules(self._optimizer)
        settings = settings_of(self.options, self.device, self.name)
        try:
            if self._executable is not None:
                compiled = self._from_file(self._executable, schedule, settings, groups)
            else:
                compiled = compile_network(model.network, schedule, groups=groups, settings=settings)
        except OutOfMemoryError as error:
            raise OutOfMemoryException(error.message, at=error.at, because=error.because, remedy=error.remedy) from None
        except AbeleError as error:
            raise as_popart(error) from None
        self._session = Session(compiled, weights=self.weights, state=self._weights.state, seed=self._seed)

    def _tensor_of(self, anchor: TrainingAnchor) -> str:
        """Name of an anchor's tensor in the program."""
        slots = {p: slot for p in STATE_PREFIXES if (slot := self._slots.get(f"{p}{anchor.weight}")) is not None}
        return anchor.tensor(slots)

    def _from_file(
        self, path: Path, schedule: Schedule, settings: Settings, groups: Sequence[Group] | None
    ) -> Compiled:
        optimisers = None if groups is None else [group.optimiser for group in groups]
        compiled, network = load_compiled(path, schedule, settings, optimisers, trusted=True)
        if str(network) != str(self._model.network):
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
        save_compiled(session.compiled, self._model.network, Path(path))

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
        """The network that is compiled, as text in bytes.

        Raises:
            popart_exception: The session was not prepared.
        """
        if self._session is None:
            raise popart_exception("Session must have been prepared before a report can be fetched")
        return str(self._model.network).encode()

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """Operators of the model as JSON: ``{"maingraph": [{"name", "type", "inputs", "outputs", "attributes"}]}``.

        Inputs and outputs are ``{"index", "name"}``, an attribute's value is its text.
        """
        nodes = [
            {
                "name": node.name,
                "type": node.op_type,
                "domain": node.domain or "ai.onnx",
                "inputs": [{"index": n, "name": name} for n, name in enumerate(node.input) if name],
                "outputs": [{"index": n, "name": name} for n, name in enumerate(node.output) if name],
                "attributes": {a.name: _text(helper.get_attribute_value(a)) for a in node.attribute},
            }
            for node in self._proto.graph.node
        ]
        return json.dumps({"maingraph": nodes})

    def _rules(self, optimizer: Optimizer) -> list[Group]:
        """Rules of the weights; zeros that stand for gradients stay zeros."""
        rules = optimizer.rules(self._model.trained)
        probes = tuple(self._model.probes.values())
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
        """Copy weights of the host into arrays, and state of the optimiser by names such as ``Accl1___w``."""
        self._prepared("Devicex::readWeights()")
        for name, array in weightsIo.weights.items():
            if name not in self._weights:
                raise popart_exception(f"there is no weight {name!r} to be read")
            np.copyto(array, self._weights[name].reshape(np.shape(array)))

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy arrays into the weights of the host, which :meth:`weightsFromHost` sends."""
        if not self.training and self.options.constantWeights:
            raise popart_exception("Cannot call writeWeights when constantWeights is set")
        for name, array in weightsIo.weights.items():
            if name not in self._weights:
                raise popart_exception(f"there is no weight {name!r} to be written")
            self._weights[name] = array

    def resetHostWeights(
        self, model: bytes | str, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Let weights of the host be those of a model.

        Raises:
            popart_exception: They are constants, or the model has others.
        """
        if not self.training and self.options.constantWeights:
            raise popart_exception("Cannot call resetHostWeights when constantWeights is set")
        self._weights.reset(*_read(model), ignores_others=ignoreWeightsInModelWithoutCorrespondingHostWeight)

    def modelToHost(self, filename: str | os.PathLike[str]) -> None:
        """Write the model with the weights that it has now, and the state of its optimiser."""
        self._prepared("Devicex::weightsToHost()").bring_to_host()
        self._weights.file(self._proto, self._folder, filename)

    # --- steps --------------------------------------------------------------------------------------------------------

    def initAnchorArrays(self) -> dict[str, Array]:
        """Arrays for what comes back of a step, by name."""
        return self._arrays.results()

    def run(self, *given: Any, **named: Any) -> None:
        """Run a step.

        Args:
            *given: A :class:`PyStepIO` or a :class:`PyStepIOCallback`; a name of the step may follow.
            **named: ``stepio`` and ``debugName``.

        Raises:
            popart_exception: Weights were not sent, or an input is none of the model's.
            popart_runtime_error: An array has another number of elements.
        """
        stepio = _step_io(given, named)
        session, model = self._prepared("Devicex::run()"), self._model
        if model.weights and not self._loaded:
            raise popart_exception(
                "Must call weightsFromHost before run as the model has initializers (or the session has been "
                "created in training mode)"
            )
        if session.compiled.settings.synthetic_data:
            session.run([])  # The machine makes its own inputs, and sends nothing.
            self._ran = True
            return
        try:
            results = session.run(self._arrays.inputs(stepio))
        except ApplicationRuntimeError as error:
            raise as_application_error(error) from error
        self._ran = True
        made = dict(zip(model.outputs, results.outputs, strict=False))
        streamed, late = self._training_anchors()
        for anchor, values in zip(streamed, results.anchors, strict=True):
            made[anchor.name] = self._arrays.gradients(anchor.name, np.asarray(values))
        for name in model.still:
            made[name] = np.zeros(model.shapes[name], model.types[name])
        for anchor in late:
            made[anchor.name] = np.asarray(session.state[self._slots[anchor.name]])
        self._arrays.give(stepio, made)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of an anchor, an input or a weight."""
        known = self._model.shapes
        if id in known:
            return TensorInfo(self._model.types[id], known[id])
        if id in self._model.infos:
            return self._model.infos[id]
        raise popart_exception(f"there is no tensor {id!r}")

    def getAllTensorIds(self) -> list[str]:
        """Names of all tensors."""
        return list(self._model.infos)

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

    @classmethod
    def fromIr(cls, ir: Any, deviceInfo: DeviceInfo) -> InferenceSession:
        """Nothing: graphs of popxl have a session of their own, and no ONNX model.

        Raises:
            popart_exception: Always.
        """
        raise popart_exception("sessions of a popxl.Ir are not made here", remedy="popxl.Session(ir, device_desc)")


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


def _text(value: Any) -> str:
    """An attribute's value as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _step_io(given: Sequence[Any], named: Mapping[str, Any]) -> StepIO:
    """The arrays or functions of a step among the arguments of ``run``; a program's number may stand before them."""
    found = next((g for g in (*given, named.get("stepio")) if isinstance(g, (PyStepIO, PyStepIOCallback))), None)
    if found is None:
        raise TypeError("run(): incompatible function arguments. It takes a PyStepIO or a PyStepIOCallback")
    return found
