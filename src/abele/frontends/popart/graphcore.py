"""PopART's own operators: what methods of a builder take, by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from onnx import numpy_helper

from abele.frontends.popart.tensor_info import code_of
from abele.frontends.popart_enums import ReductionType


class InitType(IntEnum):
    """Elements that ``init`` begins with; those of ``NoInit`` are zeros too."""

    NoInit = 0
    Zero = 1


class TensorRemapType(IntEnum):
    """Passes in which ``tensorremap`` lays a tensor out anew; results do not depend on it."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class ScatterReduction(IntEnum):
    """Ways to join elements that are scattered to one place."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


_WORDS = {
    "reduction": {ReductionType.Mean: "Mean", ReductionType.Sum: "Sum", ReductionType.NoReduction: "NoReduction"},
}
_SCATTER_WORDS = {
    ScatterReduction.Sum: "sum",
    ScatterReduction.Max: "max",
    ScatterReduction.Min: "min",
    ScatterReduction.Mul: "mul",
    ScatterReduction.NoReduction: "none",
}


@dataclass(frozen=True)
class Own:
    """An operator of PopART's domain.

    Attributes:
        name: Its name in models.
        signature: Arguments of its method.
        outputs: Results, where the call does not say how many.
    """

    name: str
    signature: inspect.Signature
    outputs: int = 1

    def results(self, inputs: Sequence[Any]) -> int:
        """Results of a call."""
        return len(inputs) if self.name == "MultiConv" else self.outputs

    def flat(self, inputs: Sequence[Any]) -> list[str]:
        """Names of inputs, of lists of them too."""
        names: list[str] = []
        for given in inputs:
            names += [given] if isinstance(given, str) else list(given)
        return names

    def plain(self, name: str, value: Any) -> Any:
        """An argument as an attribute."""
        if isinstance(value, ScatterReduction):
            return _SCATTER_WORDS[value]
        if isinstance(value, ReductionType):
            return _WORDS["reduction"][value]
        if name in ("data_type", "outDataType") and isinstance(value, str) and value != "UNDEFINED":
            return code_of(value)
        if hasattr(value, "replicaGroupSize"):
            return [int(value.type), value.replicaGroupSize]
        if isinstance(value, np.ndarray):
            return numpy_helper.from_array(value)
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, (list, tuple)):
            # Lists of lists are written one after the other, each after its length.
            if value and isinstance(value[0], (list, tuple)):
                return [n for row in value for n in (len(row), *row)]
            return list(value)
        return value


def _own(name: str, text: str = "", *, args: bool = True, count: bool = False, outputs: int = 1) -> Own:
    """An operator by what its method takes: names, with ``=`` and a default where there is one."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("args", positional)] if args else []
    if count:
        parameters.append(inspect.Parameter("num_outputs", positional))
    for part in text.split():
        word, equals, default = part.partition("=")
        held = _value(default) if equals else inspect.Parameter.empty
        parameters.append(inspect.Parameter(word, positional, default=held))
    parameters.append(inspect.Parameter("debugContext", positional, default=""))
    return Own(name, inspect.Signature(parameters), outputs)


def _value(text: str) -> Any:
    names = {"Mean": ReductionType.Mean, "Sum": ScatterReduction.Sum, "None": None, "": "", "UNDEFINED": "UNDEFINED"}
    if text in names:
        return names[text]
    number = float(text)
    return int(number) if "." not in text and "e" not in text else number


SIGNATURES: dict[str, Own] = {
    "abort": _own("Abort", outputs=0),
    "atan2": _own("Atan2"),
    "batchnormalization": _own("BatchNormalization", "epsilon=1e-5 momentum=0.9", count=True),
    "bitwiseand": _own("BitwiseAnd"),
    "bitwisenot": _own("BitwiseNot"),
    "bitwiseor": _own("BitwiseOr"),
    "bitwisexor": _own("BitwiseXor"),
    "bitwisexnor": _own("BitwiseXnor"),
    "bucketize": _own("Bucketize", "right=0"),
    "call": _own("Call", "callee", count=True),
    "copyvarupdate": _own("CopyVarUpdate"),
    "ctcloss": _own("Ctc", "reduction=Mean blank=0 outDataType=UNDEFINED zeroInfinity=0"),
    "ctcbeamsearchdecoder": _own("CtcBeamSearchDecoder", "blank=0 beam_width=100 top_paths=1", outputs=3),
    "depthtospace": _own("DepthToSpace", "blocksize mode="),
    "detach": _own("Detach"),
    "dynamicslice": _own("DynamicSlice", "axes sizes noOverlap=0"),
    "dynamicupdate": _own("DynamicUpdate", "axes sizes noOverlap=0"),
    "dynamicadd": _own("DynamicAdd", "axes sizes"),
    "dynamiczero": _own("DynamicZero", "axes sizes"),
    "expm1": _own("Expm1"),
    "log1p": _own("Log1p"),
    "fmod": _own("FMod"),
    "remainder": _own("Remainder"),
    "gelu": _own("Gelu"),
    "geluerf": _own("GeluErf"),
    "swish": _own("Swish"),
    "groupnormalization": _own("GroupNormalization", "num_groups epsilon=1e-5", outputs=3),
    "groupedgather": _own("GroupedGather", "axis=0 group_size=1"),
    "groupedscatterreduce": _own(
        "GroupedScatterReduce", "axis_size axis=-1 reduction=Sum group_size=1 enable_index_broadcast=1"
    ),
    "identityloss": _own("IdentityLoss", "reduction=Mean"),
    "incrementmod": _own("IncrementMod", "increment modulus"),
    "init": _own("Init", "shape data_type init_type batch_axis=None", args=False),
    "l1loss": _own("L1", "lambda_ reduction=Mean"),
    "nllloss": _own("Nll", "reduction=Mean ignoreIndex=None inputIsLogProbability=0"),
    "lstm": _own("LSTM", "outputFullSequence=1", outputs=2),
    "multiconv": _own(
        "MultiConv",
        "dilations=None inDilations=None pads=None outPads=None strides=None availableMemoryProportions=None "
        "partialsTypes=None planType=None perConvReservedTiles=None cycleBackOff=None enableConvDithering=None",
    ),
    "nearbyint": _own("NearbyInt"),
    "round": _own("Round"),
    "nop": _own("Nop"),
    "normalize_image": _own("NormalizeImage", "scale=1.0"),
    "packedDataBlock": _own("PackedDataBlock", "maxSequenceLengths resultSize callbackBatchSize callback"),
    "printtensor": _own(
        "PrintTensor",
        "print_gradient=1 title= summariseThreshold=1000 edgeItems=3 maxLineWidth=75 digits=8 floatFormat=0 "
        "separator=None openBracket=None closeBracket=None",
    ),
    "reducemedian": _own("ReduceMedian", "axes=None keepdims=1", outputs=2),
    "replicatedallgather": _own("ReplicatedAllGather", "commGroup=None"),
    "replicatedallreduce": _own("ReplicatedAllReduce", "collectiveOperator=None commGroup=None"),
    "replicatedreducescatter": _own("ReplicatedReduceScatter", "collectiveOperator=None commGroup=None"),
    "reshape": _own("Reshape", "shape"),
    "reverse": _own("Reverse", "dimensions"),
    "scale": _own("Scale", "scale"),
    "scaledadd": _own("ScaledAdd", "scale0=1.0 scale1=1.0"),
    "scatterreduce": _own("ScatterReduce", "axis_size axis=-1 reduction=Sum enable_index_broadcast=1"),
    "sequenceslice": _own("SequenceSlice", "zeroUnused=0"),
    "shapeddropout": _own("ShapedDropout", "shape ratio=0.5"),
    "slice": _own("Slice", "ends starts axes=None"),
    "sort": _own("Sort", "axis=-1 descending=0 stable=0", outputs=2),
    "splinebasis": _own("SplineBasis", "degree=1", outputs=2),
    "splineweighting": _own("SplineWeighting"),
    "subsample": _own("Subsample", "strides"),
    "tensorremap": _own("TensorRemap", "remap_type"),
}
"""Methods of ``builder.aiGraphcore`` by name."""
