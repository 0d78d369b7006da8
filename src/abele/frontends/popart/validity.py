"""Refusals before a session compiles: options that contradict each other or the notes of a model, and types."""

from __future__ import annotations

import onnx

from abele.frontends.onnx.notes import NOTES, notes_of
from abele.frontends.popart.devices import DeviceInfo
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.options import SessionOptions
from abele.frontends.popart.reading import SessionModel
from abele.frontends.popart_enums import RecomputationType


def check_options(options: SessionOptions, device: DeviceInfo, *, training: bool) -> None:
    """Raise if options contradict each other, the device or the kind of the session.

    Raises:
        popart_exception: They do.
    """
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        raise popart_exception(
            f"accumulationFactor is {options.accumulationFactor}, and enableGradientAccumulation is False"
        )
    if options.enableGradientAccumulation and not training:
        raise popart_exception("Gradient Accumulation can only be used with a training session")
    for name in ("accumulationFactor", "replicatedGraphCount"):
        if getattr(options, name) < 1:
            raise popart_exception(f"{name} is a positive number, not {getattr(options, name)}")
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        raise popart_exception(
            f"replicatedGraphCount is {options.replicatedGraphCount}, and enableReplicatedGraphs is False"
        )
    if options.enableDistributedReplicatedGraphs and options.globalReplicationFactor != options.replicas:
        raise popart_exception(
            f"globalReplicationFactor is {options.globalReplicationFactor}, replicas are {options.replicas}",
            because="a session's replicas are all in one process here",
            remedy="replicatedGraphCount of all, and enableDistributedReplicatedGraphs = False",
        )
    if options.enablePipelining and (device.numIpus < 2 or not options.virtualGraphMode):
        raise popart_exception(
            f"Pipelining requires more than 1 IPU (currently {device.numIpus}) and the 'virtualGraphMode' "
            "session option to not be VirtualGraphMode.Off"
        )


def check_recomputation(proto: onnx.ModelProto, options: SessionOptions) -> None:
    """Raise if nodes say what is made again in the backward pass, and options want that chosen by themselves too.

    Raises:
        popart_exception: Both do.
    """
    chosen = options.autoRecomputation
    if chosen in (RecomputationType.NoRecompute, RecomputationType.RecomputeAll):
        return
    for node in proto.graph.node:
        if NOTES["recompute"] in notes_of(node):
            raise popart_exception(
                "A mixture of auto and manual recomputation is not supported",
                because=f"autoRecomputation is {chosen.name}, {node.op_type} {', '.join(node.output)} is marked",
                remedy="autoRecomputation = popart.RecomputationType.NoRecompute, or no recomputeOutput",
            )


def check_types(model: SessionModel) -> None:
    """Raise if the program would compute in 64-bit floats, which the machine does not have.

    Raises:
        popart_exception: It would.
    """
    if model.doubles:
        raise popart_exception(
            "Is there a poplar type for DOUBLE?",
            because=f"the tensors {', '.join(map(repr, model.doubles[:4]))} have 64-bit floats",
            remedy="popart.GraphTransformer(model).convertDoublesToFloats(), or a cast in the model",
        )


def check_stages(proto: onnx.ModelProto, batches: int, options: SessionOptions, *, training: bool) -> None:
    """Raise unless a model's nodes have stages of a pipeline, in an order that can run.

    Raises:
        popart_exception: Some nodes have none, one reads what a later stage makes, or a step has too few micro-batches.
    """
    nodes = [node for node in proto.graph.node if node.op_type != "Constant"]
    found = [notes_of(node).get(NOTES["stage"]) for node in nodes]
    given = [int(stage) for stage in found if stage is not None]
    if given and len(given) < len(found):
        missing = nodes[found.index(None)]
        raise popart_exception(
            "Only some ops have had their pipeline stage set.",
            because=f"{missing.op_type} {', '.join(missing.output)} has none",
            remedy="with builder.pipelineStage(number) around every operator",
        )
    stage_of: dict[str, int] = {}
    for node, stage in zip(nodes, given, strict=False):
        for name in node.input:
            if stage_of.get(name, stage) > stage:
                raise popart_exception(
                    f"Tensor {name} is consumed in an earlier pipeline stage than it is produced",
                    because=f"stage {stage_of[name]} makes it, stage {stage} reads it",
                )
        stage_of |= dict.fromkeys(node.output, stage)
    stages = max(given, default=0) + 1
    accumulates = training and options.enableGradientAccumulation
    depth, what = (
        (options.accumulationFactor, "gradient accumulation factor") if accumulates else (batches, "batchesPerStep")
    )
    if depth < stages:
        raise popart_exception(
            f"For pipelining, depth ({what}) must equal at least the number of pipeline stages ({stages})",
            because=f"it is {depth}",
        )
