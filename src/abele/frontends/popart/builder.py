"""``popart.Builder``: models in ONNX's form, operator by operator.

A builder keeps a ``ModelProto``; tensors are names. Shapes and types of what operators make are found as they are asked
for, by the reader that compiles the model too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from abele.errors import AbeleError
from abele.frontends.onnx.files import read_model
from abele.frontends.onnx.model import functions_of, versions
from abele.frontends.onnx.notes import NOTES
from abele.frontends.onnx.reader import GraphReader, ModelParts
from abele.frontends.onnx.registry import Item
from abele.frontends.onnx.types import element_type, host_type
from abele.frontends.onnx.writing import lay_outside
from abele.frontends.popart.annotations import RecomputeType, ReplicatedStreamMode
from abele.frontends.popart.errors import as_popart, popart_exception
from abele.frontends.popart.op_methods import DOMAINS, NEWEST_OPSET, OLDEST_OPSET, Opset, check_domain
from abele.frontends.popart.tensor_info import TensorInfo, lower_name
from abele.network import NetworkBuilder
from abele.writing import writing_whole

DEFAULT_OPSET = 10
IR_VERSION = 4
BROADCAST, VARIABLE = "popart_broadcast:", "popart_variable:"
"""Prefixes of keys of a model's metadata: inputs shared by all replicas, and groups with values of their own."""


class Builder:
    """A model in the making.

    Args:
        modelProtoOrFilename: A model to go on from: its bytes or a path; a new one if left out.
        opsets: Version of the operators of each domain, such as ``{"ai.onnx": 9, "ai.graphcore": 1}``.
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | os.PathLike[str] | None = None,
        opsets: Mapping[str, int] | None = None,
        *,
        parent: Builder | None = None,
    ) -> None:
        self._parent = parent
        self._opsets: dict[str, Opset] = {}
        self._scopes: list[str] = []
        self._notes: list[tuple[str, Any]] = []
        self._shapes: ModelShapes | None = None
        self._children: list[Builder] = []
        self._versions: dict[str, int] = {}
        if modelProtoOrFilename is None:
            self._model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="abele")
            self._model.graph.name = "BuilderGraph"
        else:
            self._model = _loaded(modelProtoOrFilename)
            for entry in self._model.opset_import:
                domain = "ai.onnx" if entry.domain == "" else entry.domain
                if domain == "ai.onnx" and entry.version >= OLDEST_OPSET:
                    version = min(entry.version, onnx.defs.onnx_opset_version())
                    self._versions[domain] = version
                    self._opsets[domain] = Opset(self, domain, version)
        for domain, version in (opsets or {}).items():
            check_domain(domain)
            self._opset(domain, version)
        self._taken = set(_names(self._model.graph))

    # --- operators ----------------------------------------------------------------------------------------------------

    @property
    def aiOnnx(self) -> Opset:
        """ONNX's operators."""
        return self._opset("ai.onnx", self._root._versions.get("ai.onnx", DEFAULT_OPSET))

    @property
    def aiGraphcore(self) -> Opset:
        """PopART's own operators."""
        return self._opset("ai.graphcore", 1)

    @property
    def aiGraphcoreOpset1(self) -> Opset:
        """PopART's own operators."""
        return self.aiGraphcore

    def __getattr__(self, name: str) -> Any:
        if name.startswith("aiOnnxOpset") and name.removeprefix("aiOnnxOpset").isdigit():
            version = int(name.removeprefix("aiOnnxOpset"))
            if OLDEST_OPSET <= version <= NEWEST_OPSET:
                return self._opset("ai.onnx", version)
        raise AttributeError(f"'Builder' object has no attribute {name!r}")

    def _opset(self, domain: str, version: int) -> Opset:
        known = self._root._versions.setdefault(domain, version)
        if known != version:
            spelled = f"{'aiOnnx' if domain == 'ai.onnx' else 'aiGraphcore'}Opset{version}"
            raise RuntimeError(
                f"Invalid opset '{spelled}' selected. Opset for domain {domain} already defined as {known}"
            )
        made = self._opsets.get(domain)
        if made is None:
            made = self._opsets[domain] = Opset(self, domain, version)
            self._import(domain, version)
        return made

    def _import(self, domain: str, version: int) -> None:
        name = DOMAINS.get(domain, domain)
        model = self._root._model
        if all(o.domain != name for o in model.opset_import):
            model.opset_import.append(helper.make_opsetid(name, version))

    @property
    def _root(self) -> Builder:
        return self if self._parent is None else self._parent._root

    def append(
        self,
        name: str,
        domain: str,
        inputs: Sequence[str],
        results: int,
        attributes: Mapping[str, Any],
        context: Any = "",
    ) -> list[str]:
        """Names of what a new node makes.

        Raises:
            TypeError: The inputs are no names of tensors.
        """
        if isinstance(inputs, str) or not all(isinstance(i, str) for i in inputs):
            raise TypeError(
                f"{name.lower()}(): incompatible function arguments. The inputs are a list of names, got {inputs!r}"
            )
        label = _label(context)
        outputs = [self._name(f"{label or name}:{n}") for n in range(results)]
        node = onnx.NodeProto(op_type=name, domain=domain, name=self._scoped(label or ""))
        node.input.extend(inputs)
        node.output.extend(outputs)
        for key, value in attributes.items():
            node.attribute.append(_attribute(key, value))
        for key, value in self._notes:
            node.attribute.append(_attribute(key, value))
        self._model.graph.node.append(node)
        if domain == "" and "ai.onnx" not in self._root._versions:
            self._opset("ai.onnx", DEFAULT_OPSET)
        return outputs

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Names of what an operator of another domain makes."""
        self._import(domain, opVersion)
        return self.append(opName, domain, inputs, numOutputs, attributes or {}, name)

    def reshape_const(self, aiOnnx: Opset, args: Sequence[str], shape: Sequence[int], debugContext: Any = "") -> str:
        """A reshape to a shape that is known: a constant and the operator."""
        wanted = aiOnnx.constant(np.asarray(shape, np.int64), debugContext=_label(debugContext) or "")
        made: str = aiOnnx.reshape([args[0], wanted], debugContext=debugContext)
        return made

    # --- names --------------------------------------------------------------------------------------------------------

    @contextmanager
    def nameScope(self, name: str) -> Iterator[None]:
        """Names of tensors that are made inside begin with ``name/``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def getNameScope(self, name: str = "") -> str:
        """A name inside of the scopes that are open."""
        return self._scoped(name)

    def pushNameScope(self, name: str) -> None:
        """Open a scope of names."""
        self._scopes.append(name)

    def popNameScope(self) -> None:
        """Close the innermost scope of names."""
        self._scopes.pop()

    def _scoped(self, name: str) -> str:
        return "/".join([*self._scopes, name]) if name else "/".join(self._scopes)

    def _name(self, wanted: str) -> str:
        first = name = self._scoped(wanted)
        count = 0
        while name in self._taken:
            count += 1
            name = f"{first}/{count}"
        self._taken.add(name)
        return name

    # --- inputs and results -------------------------------------------------------------------------------------------

    def addInputTensor(self, info: Any, *given: Any, **named: Any) -> str:
        """Name of a new input: of a :class:`TensorInfo`, or of a type and a shape."""
        if not isinstance(info, TensorInfo):
            shape = given[0] if given else named.pop("shape")
            info, given = TensorInfo(info, shape), given[1:]
        settings = next((g for g in given if not isinstance(g, str) and hasattr(g, "exchangeStrategy")), None)
        context = named.pop("debugContext", None) or named.pop("debugPrefix", None)
        context = context or next((g for g in given if g is not settings), "")
        name = self._name(_label(context) or "input")
        self._model.graph.input.append(helper.make_tensor_value_info(name, info.code, info.shape()))
        settings = settings or named.get("settings") or named.get("inputSettings")
        if settings is not None and settings.replicatedStreamMode == ReplicatedStreamMode.Broadcast:
            self._model.metadata_props.add(key=f"{BROADCAST}{name}", value="1")
        return name

    def addUntypedInputTensor(self, debugContext: Any = "") -> str:
        """Name of a new input of a graph inside, whose type is that of what it is given.

        Raises:
            popart_exception: The graph is the main one.
        """
        if self._parent is None:
            raise popart_exception(
                "Can not add untyped tensors to the top-level graph", remedy="addInputTensor, with a type and a shape"
            )
        name = self._name(_label(debugContext) or "input")
        self._model.graph.input.append(onnx.ValueInfoProto(name=name))
        return name

    def addInputTensorFromParentGraph(self, id: str) -> None:
        """Let a tensor of the graph around be read here."""
        self._taken.add(id)

    def addInitializedInputTensor(self, array: Any, *given: Any, **named: Any) -> str:
        """Name of a new weight, which begins with the elements of an array."""
        settings = next((g for g in given if hasattr(g, "numReplicasReturningVariable")), None)
        settings = named.pop("variableSettings", settings)
        context = named.pop("debugContext", None) or named.pop("debugPrefix", None)
        context = context or next((g for g in given if g is not settings), "")
        contents = np.ascontiguousarray(array)
        name = self._name(_label(context) or "init_input")
        self._model.graph.initializer.append(numpy_helper.from_array(contents, name))
        shape = contents.shape[1:] if settings is not None and settings.has_groups else contents.shape
        code = helper.np_dtype_to_tensor_dtype(contents.dtype)
        self._model.graph.input.append(helper.make_tensor_value_info(name, code, shape))
        if settings is not None:
            self._model.metadata_props.add(key=f"{VARIABLE}{name}", value=settings.text())
        return name

    def addOutputTensor(self, name: str) -> None:
        """Let a tensor be a result of the graph.

        Raises:
            popart_exception: It is one already, or there is no such tensor.
        """
        if name not in self._taken:
            raise popart_exception(f"there is no tensor {name!r} to be an output of the graph")
        if any(v.name == name for v in self._model.graph.output):
            raise popart_exception(f"'{name}' is already an output tensor of the graph")
        self._model.graph.output.append(onnx.ValueInfoProto(name=name))

    def getInputTensorIds(self) -> list[str]:
        """Names of the inputs, weights among them."""
        return [v.name for v in self._model.graph.input]

    def getOutputTensorIds(self) -> list[str]:
        """Names of the results."""
        return [v.name for v in self._model.graph.output]

    def getValueTensorIds(self) -> list[str]:
        """Names of what nodes make, but for results."""
        results = set(self.getOutputTensorIds())
        return [name for node in self._model.graph.node for name in node.output if name not in results]

    def getTrainableTensorIds(self) -> list[str]:
        """Names of the weights."""
        return [t.name for t in self._model.graph.initializer]

    def isInitializer(self, id: str) -> bool:
        """True for a weight."""
        return any(t.name == id for t in self._model.graph.initializer)

    def hasValueInfo(self, id: str) -> bool:
        """True if shape and type of a tensor are known."""
        try:
            self._found(id)
        except AbeleError:
            return False
        return True

    def getTensorShape(self, id: str) -> list[int]:
        """Shape of a tensor.

        Raises:
            popart_exception: There is no such tensor, or its shape is open.
        """
        return list(self._found(id).shape)

    def getTensorDtypeString(self, id: str) -> str:
        """Name of the type of a tensor as NumPy has it.

        Raises:
            popart_exception: There is no such tensor.
        """
        return lower_name(helper.np_dtype_to_tensor_dtype(self._found(id).dtype))

    def _found(self, name: str) -> Item:
        if self._shapes is None:
            self._shapes = ModelShapes(self._model)
        try:
            return self._shapes.item(name)
        except AbeleError as error:
            raise as_popart(error) from None

    # --- graphs inside ------------------------------------------------------------------------------------------------

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a graph inside, to be handed to ``call``, ``loop``, ``logical_if`` or ``scan``."""
        child = Builder(parent=self)
        child._taken = self._taken
        self._children.append(child)
        return child

    def graph(self) -> onnx.GraphProto:
        """The graph as it is now."""
        return self._model.graph

    def setParent(self, parent: Builder) -> None:
        """Let this be a builder of a graph inside of another's."""
        self._parent = parent

    def setGraphName(self, name: str) -> None:
        """Call the graph something else."""
        self._model.graph.name = name

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Note in the model on how many replicas it is to run."""
        self._model.metadata_props.add(key="popart_replication_factor", value=str(int(replicationFactor)))

    # --- files --------------------------------------------------------------------------------------------------------

    @property
    def proto(self) -> onnx.ModelProto:
        """The model."""
        return self._model

    def _describe_outputs(self) -> None:
        """Note types and shapes of results in the model, where they are known."""
        for declared in self._model.graph.output:
            if declared.type.WhichOneof("value") is None and self.hasValueInfo(declared.name):
                item = self._found(declared.name)
                code = helper.np_dtype_to_tensor_dtype(item.dtype)
                declared.CopyFrom(helper.make_tensor_value_info(declared.name, code, item.shape))

    def getModelProto(self, humanReadable: bool = False) -> Any:
        """The model as bytes; as text where that is asked for."""
        if not self._model.opset_import:
            self._import("ai.onnx", DEFAULT_OPSET)
        self._describe_outputs()
        return str(self._model) if humanReadable else self._model.SerializeToString()

    def saveModelProto(self, filename: str | os.PathLike[str]) -> None:
        """Write the model to a file."""
        with writing_whole(Path(filename)) as part:
            part.write_bytes(self.getModelProto())

    def saveInitializersExternally(self, ids: Iterable[str], filename: str | os.PathLike[str]) -> None:
        """Write the data of weights to a file, of which the model tells from then on.

        Raises:
            popart_exception: There is no such weight.
        """
        move_outside(self._model.graph, list(ids), Path(filename))

    # --- notes on nodes -----------------------------------------------------------------------------------------------

    def _noted(self, key: str, args: tuple[Any, ...], value: Any) -> Any:
        """A context in which nodes get a note; or a note on those that make some tensors."""
        if args:
            for name in [args[0]] if isinstance(args[0], str) else args[0]:
                self._note(name, key, value)
            return None
        return self._noting(key, value)

    @contextmanager
    def _noting(self, key: str, value: Any) -> Iterator[None]:
        self._notes.append((key, value))
        try:
            yield
        finally:
            self._notes.pop()

    def _maker(self, name: str) -> onnx.NodeProto:
        for node in self._model.graph.node:
            if name in node.output:
                return node
        raise popart_exception(
            f"no node makes the tensor {name!r}", remedy="the name that an operator's method returned"
        )

    def _note(self, name: str, key: str, value: Any) -> None:
        node = self._maker(name)
        kept = [a for a in node.attribute if a.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, _attribute(key, value)])

    def virtualGraph(self, *args: Any) -> Any:
        """An IPU for nodes that are made inside, or for the makers of some tensors."""
        *names, value = args
        return self._noted(NOTES["ipu"], tuple(names), int(value))

    def pipelineStage(self, *args: Any) -> Any:
        """A stage of the pipeline for nodes that are made inside, or for the makers of some tensors."""
        *names, value = args
        return self._noted(NOTES["stage"], tuple(names), int(value))

    def executionPhase(self, *args: Any) -> Any:
        """A phase for nodes that are made inside, or for the makers of some tensors."""
        *names, value = args
        return self._noted(NOTES["phase"], tuple(names), int(value))

    def schedulePriority(self, *args: Any) -> Any:
        """Nodes come earlier or later; the order here is the model's own."""
        *names, value = args
        return self._noted(NOTES["priority"], tuple(names), float(value))

    def recomputeOutput(self, *args: Any) -> Any:
        """Choice between keeping results of nodes for the backward pass and making them again."""
        *names, value = args
        return self._noted(NOTES["recompute"], tuple(names), int(RecomputeType(value)))

    def outputTensorLocation(self, *args: Any) -> Any:
        """Place of the results of nodes."""
        *names, value = args
        return self._noted(NOTES["location"], tuple(names), value.serialized())

    def outlineAttributes(self, *args: Any) -> Any:
        """Attributes by which parts of the model count as different."""
        *names, value = args
        flat = [str(part) for pair in dict(value).items() for part in pair]
        return self._noted(NOTES["outline"], tuple(names), flat)

    def commGroup(self, value: Any) -> Any:
        """Replicas that work together."""
        return self._noted(NOTES["group"], (), [int(n) for n in value])

    def checkpointOutput(self, ids: Sequence[str]) -> list[str]:
        """Names of the same tensors, which are kept for the backward pass."""
        return [self.append("Identity", "", [name], 1, {NOTES["checkpoint"]: 1}, "Checkpoint")[0] for name in ids]

    def recomputeOutputInBackwardPass(self, ids: Any, value: Any = 1) -> None:
        """Make tensors again in the backward pass."""
        self._noted(NOTES["recompute"], (ids,), int(value))

    def getRecomputeOutputInBackwardPass(self, ids: Any) -> bool:
        """True if tensors are made again in the backward pass."""
        return bool(self._held(ids, NOTES["recompute"], 0))

    def hasPipelineStage(self, ids: Any = None) -> bool:
        """True if a stage is open, or tensors have one."""
        return self._has(NOTES["stage"], ids)

    def getPipelineStage(self, ids: Any = None) -> int:
        """The stage that is open, or that of tensors."""
        return int(self._get("pipeline stage", NOTES["stage"], ids))

    def hasExecutionPhase(self, ids: Any = None) -> bool:
        """True if a phase is open, or tensors have one."""
        return self._has(NOTES["phase"], ids)

    def getExecutionPhase(self, ids: Any = None) -> int:
        """The phase that is open, or that of tensors."""
        return int(self._get("execution phase", NOTES["phase"], ids))

    def hasVirtualGraph(self, ids: Any = None) -> bool:
        """True if an IPU is open, or tensors have one."""
        return self._has(NOTES["ipu"], ids)

    def getVirtualGraph(self, ids: Any = None) -> int:
        """The IPU that is open, or that of tensors."""
        return int(self._get("virtual graph", NOTES["ipu"], ids))

    def _has(self, key: str, ids: Any) -> bool:
        if ids is None:
            return any(name == key for name, _ in self._notes)
        return self._held(ids, key, None) is not None

    def _get(self, what: str, key: str, ids: Any) -> Any:
        if ids is None:
            held = next((value for name, value in reversed(self._notes) if name == key), None)
        else:
            held = self._held(ids, key, None)
        if held is None:
            raise popart_exception(f"no {what} is set")
        return held

    def _held(self, ids: Any, key: str, default: Any) -> Any:
        name = ids if isinstance(ids, str) else next(iter(ids))
        found = next((a for a in self._maker(name).attribute if a.name == key), None)
        return default if found is None else helper.get_attribute_value(found)

    def excludePatterns(self, id: Any, names: Sequence[str]) -> None:
        """Patterns that do not apply to a node; all give the same results."""
        self._noted(NOTES["patterns"], (id,), list(names))

    def setInplacePreferences(self, id: Any, preferences: Mapping[str, float]) -> None:
        """Order of a node's forms in place; all give the same results."""
        self._noted(NOTES["inplace"], (id,), list(preferences))

    def getExcludePatterns(self, id: Any) -> list[str]:
        """Patterns that do not apply to a node."""
        return [name.decode() for name in self._held(id, NOTES["patterns"], [])]

    def setPartialsType(self, id: Any, partialsType: str) -> None:
        """Type of the partial sums of the products that make tensors: FLOAT or HALF.

        Raises:
            popart_exception: Another type, or tensors that no product makes.
        """
        if str(partialsType).upper() not in ("FLOAT", "HALF"):
            raise popart_exception(f"Unsupported partials type {partialsType!r}; FLOAT and HALF exist")
        for name in [id] if isinstance(id, str) else id:
            if self._maker(name).op_type not in ("Conv", "MatMul", "ConvTranspose", "Gemm", "MultiConv"):
                kind = self._maker(name).op_type
                raise popart_exception(f"Builder::setPartialsType should only be called on Conv and MatMul, not {kind}")
        self._noted(NOTES["partials"], (id,), str(partialsType).upper())

    def getPartialsType(self, id: Any) -> str:
        """Type of the partial sums of the product that makes a tensor."""
        held = self._held(id, NOTES["partials"], b"FLOAT")
        return held.decode() if isinstance(held, bytes) else str(held)

    def setAvailableMemoryProportion(self, id: Any, proportion: float) -> None:
        """Share of a tile's memory for the products that make tensors.

        Raises:
            popart_exception: It is not above 0 and at most 1.
        """
        if not 0 < proportion <= 1:
            raise popart_exception(f"availableMemoryProportion must be in (0,1], got {proportion:g}")
        self._noted(NOTES["memory"], (id,), float(proportion))

    def setEnableConvDithering(self, id: Any, value: int) -> None:
        """Let convolutions begin at tiles of their own."""
        self._noted(NOTES["dithering"], (id,), int(value))

    def setSerializeMatMul(self, ids: Any, mode: str, factor: int = 0, keep_precision: bool = False) -> None:
        """Cut products into parts that come one after the other.

        Raises:
            popart_exception: There is no such way of cutting.
        """
        modes = ("none", "input_channels", "reducing_dim", "output_channels")
        if mode not in modes:
            listed = ", ".join(modes)
            raise popart_exception(f"Unsupported mat mul serialization mode '{mode}'. Supported modes are {listed}")
        for key, value in (("serialize", mode), ("factor", int(factor)), ("precision", int(keep_precision))):
            self._noted(NOTES[key], (ids,), value)

    # --- attributes of nodes ------------------------------------------------------------------------------------------

    def _node_of(self, outputs: Iterable[str]) -> onnx.NodeProto:
        wanted = set(outputs)
        for node in self._model.graph.node:
            if wanted <= set(node.output):
                return node
        raise popart_exception(f"Could not find a node with outputs {', '.join(sorted(wanted))}.")

    def addNodeAttribute(self, attributeName: str, attributeValue: Any, nodeOutputNames: Iterable[str]) -> None:
        """Add an attribute to the node that makes some tensors.

        Raises:
            popart_exception: It has it already.
        """
        node = self._node_of(nodeOutputNames)
        if any(a.name == attributeName for a in node.attribute):
            raise popart_exception(f"Node already has attribute {attributeName}.")
        node.attribute.append(_attribute(attributeName, attributeValue))

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> bool:
        """True if the node that makes some tensors has an attribute."""
        return any(a.name == attributeName for a in self._node_of(nodeOutputNames).attribute)

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> None:
        """Take an attribute off the node that makes some tensors.

        Raises:
            popart_exception: It has none of that name.
        """
        node = self._node_of(nodeOutputNames)
        kept = [a for a in node.attribute if a.name != attributeName]
        if len(kept) == len(node.attribute):
            raise popart_exception(f"Cannot remove attribute {attributeName} as it does not exist.")
        del node.attribute[:]
        node.attribute.extend(kept)

    def getAllNodeAttributeNames(self, nodeOutputNames: Iterable[str]) -> list[str]:
        """Names of the attributes of the node that makes some tensors."""
        return [a.name for a in self._node_of(nodeOutputNames).attribute]

    def _attribute_of(self, name: str, outputs: Iterable[str], *kinds: int) -> Any:
        found = next((a for a in self._node_of(outputs).attribute if a.name == name), None)
        if found is None:
            raise popart_exception(f"Node does not have an attribute {name}.")
        if found.type not in kinds:
            held = AttributeProto.AttributeType.Name(found.type)
            raise popart_exception(f"The attribute {name} is of type {held}.")
        value = helper.get_attribute_value(found)
        if isinstance(value, bytes):
            return value.decode()
        return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, (list, tuple)) else value

    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> int:
        """A whole number."""
        return int(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.INT))

    def getInt64VectorNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> list[int]:
        """Whole numbers."""
        return list(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.INTS))

    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> float:
        """A number."""
        return float(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.FLOAT))

    def getFloatVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> list[float]:
        """Numbers."""
        return list(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.FLOATS))

    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> str:
        """A text."""
        return str(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.STRING))

    def getStringVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> list[str]:
        """Texts."""
        return list(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.STRINGS))

    def getBoolNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> bool:
        """A truth value."""
        return bool(self._attribute_of(attributeName, nodeOutputNames, AttributeProto.INT))


class ModelShapes:
    """Shapes and types of the tensors of a model, found by reading its nodes as they are added."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._read = model, 0
        parts = ModelParts(None, versions_of(model), functions_of(model))
        self._reader = GraphReader(NetworkBuilder(), parts, parts.opsets)

    def item(self, name: str) -> Item:
        """A tensor by name.

        Raises:
            popart_exception: There is none, or its shape is open.
        """
        reader, graph = self._reader, self._model.graph
        reader.parts.opsets.update(versions_of(self._model))
        shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in graph.input}
        for tensor in graph.initializer:
            if tensor.name not in reader.items:
                array = numpy_helper.to_array(tensor)
                if shapes.get(tensor.name, array.shape) != array.shape:
                    array = array[0]  # Of groups of replicas: each sees a row.
                item = reader.items[tensor.name] = reader.known(tensor.name, array)
                item.weight, item.fixed = array.dtype.kind == "f", array.dtype.kind != "f"
        for declared in graph.input:
            if declared.name not in reader.items and declared.type.HasField("tensor_type"):
                kind = declared.type.tensor_type
                dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
                if min(dims, default=0) < 0:
                    continue
                value = reader.net.root.input(dims, element_type(kind.elem_type), declared.name)
                reader.items[declared.name] = Item(declared.name, tuple(dims), host_type(kind.elem_type), value=value)
        while self._read < len(graph.node):
            reader.node(graph.node[self._read])
            self._read += 1
        found = reader.items.get(name)
        if found is None:
            raise popart_exception(f"there is no tensor {name!r} in the model, or its shape is open")
        return found


def versions_of(model: onnx.ModelProto) -> dict[str, int]:
    """Version of the operators of each domain, PopART's own where a model does not say."""
    if not any(o.domain in ("", "ai.onnx") for o in model.opset_import):
        return {"": DEFAULT_OPSET, "ai.graphcore": 1, **{o.domain: o.version for o in model.opset_import}}
    return {"ai.graphcore": 1, **versions(model)}


def _loaded(source: bytes | str | os.PathLike[str]) -> onnx.ModelProto:
    try:
        return read_model(source)[0]
    except AbeleError as error:
        what = "string" if isinstance(source, bytes) else f"file {source!r}"
        raise popart_exception(
            f"Failed to load a ModelProto from the {what}. {error.message}",
            remedy="Check that it is either a valid path to an existing onnx file, or the bytes of one",
        ) from None


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (v.name for v in graph.input)
    yield from (t.name for t in graph.initializer)
    for node in graph.node:
        yield from node.output


def _label(context: Any) -> str:
    """The name that a debug context gives."""
    if isinstance(context, str):
        return context
    for name in ("name", "pathName"):
        held = getattr(context, name, None)
        if isinstance(held, str):
            return held
    return ""


def _attribute(name: str, value: Any) -> AttributeProto:
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    elif isinstance(value, set):
        value = sorted(value)
    if isinstance(value, (list, tuple)) and not value:
        return AttributeProto(name=name, type=AttributeProto.INTS)
    return helper.make_attribute(name, value)


def move_outside(graph: onnx.GraphProto, ids: Sequence[str], path: Path) -> None:
    """Write data of initialisers to a file, and let the graph tell where it lies.

    Raises:
        popart_exception: There is no such initialiser.
    """
    known = {t.name: t for t in graph.initializer}
    with path.open("ab") as file:
        for name in ids:
            if name not in known:
                raise popart_exception(f"there is no initializer {name!r} to be saved externally")
            tensor = known[name]
            contents = numpy_helper.to_array(tensor).tobytes()
            offset = file.tell()
            file.write(contents)
            lay_outside(tensor, path.name, offset, len(contents))
