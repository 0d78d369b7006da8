"""Every name of Poplar's and PopLibs' inventories is there, or the documents say why not.

``python tests/poplar/test_reference_names.py`` prints how many there are, and those that are neither.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from abele.errors import TypeMismatchError

ROOT = Path(__file__).resolve().parents[2]
FILES = ("poplar_api.md", "poplibs_api.md")
FOLDERS = (ROOT.parent / "shared" / "reference", ROOT.parents[1] / "shared" / "reference")
REFERENCE = next((folder for folder in FOLDERS if (folder / FILES[0]).exists()), None)
DOCUMENTS = ("poplar.md", "libraries.md", "cpp_codelets.md", "codelets.md")

SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")
IDENTIFIER = re.compile(r"(?<![\w.\"<#/])([A-Za-z_]\w*)(\s*\()?")

PARAMETERS = {
    "blockDims",
    "rhsSparsity",
    "accurateHalf",
    "removeAliased",
    "requireSimplestOrder",
    "rearrangeOnHost",
    "optimiseMemory",
    "workerId",
    "dontOutline",
    "offsetTensor",
    "outTensor",
    "repeatIndex",
    "progressCb",
    "progIndex",
    "debugName",
    "minElementsPerTile",
    "grainSize",
    "numTiles",
    "opType",
    "scaleB",
    "sA",
    "sB",
    "outType",
    "scaleTensor",
    "minGrain",
    "numIndices",
    "dataType",
    "groupSize",
    "numEntries",
    "outputSize",
    "numLookups",
    "indexVectorDim",
    "offsetDims",
    "sliceSizes",
    "collapsedSliceDims",
    "startIndexMap",
    "updateComputation",
    "tIn",
    "tOut",
    "inOff",
    "outOff",
    "zeroUnused",
    "transposeAndFlipWeights",
    "zDeltas",
    "seedModifier",
    "keepProbability",
    "masterSeed",
    "act",
    "outGrad",
    "modelOutputs",
    "deltasScale",
    "outputScaling",
    "numCorrect",
    "padLo",
    "padHi",
    "pooledGrad",
    "useScaledGradient",
    "fwdChansPerGroup",
    "numGroups",
    "timeSteps",
    "maxTimeSteps",
    "layerSizes",
    "recurrentActivation",
    "resetAfter",
    "Cin",
    "Cout",
    "vertexRef",
    "ipuModel",
    "transL",
    "transR",
    "replicaGroupSize",
    "nVertices",
    "workerCycles",
    "supervisorOverhead",
    "numWorkers",
}
"""Arguments and fields: those that Python can name are named as ours."""
PROSE = {
    "Calibration",
    "None",
    "MyPythonVertex",
    "compute",
    "__attribute__",
    "MinAlign",
    "Interleaved",
    "constraint",
    "elem",
    "region",
    "len",
    "ExternalCodelet",
    "False",
    "what",
    "Field",
    "Stencil",
    "Out",
    "Cannot",
    "Profile",
    "ceilDiv",
    "Data",
    "Snapshot",
    "Views",
    "Constants",
    "Uninitialised",
    "Everything",
    "Control",
    "Functions",
    "Replication",
    "Host",
    "Integer",
    "Two",
    "True",
    "Poplar",
    "Transformer",
    "Sparse",
    "Element",
    "Structure",
    "Unstructured",
    "Embedding",
    "CycleEstimators",
    "PerformanceEstimation",
    "estimateCycles",
}
PARTS = {
    "WithUnreachableDefault",
    "getAndModify",
    "resetFloat",
    "InPlace",
    "ToDestination",
    "XInPlace",
    "XWithOutput",
    "createX",
    "GroupedAcc",
    "GroupedWithOutput",
    "Grouped",
    "distributedBatchNorm",
    "auGru",
    "calcCTCLoss",
    "allToAll",
    "Grad",
    "Rnn",
    "getVirtualTileFromPhysical",
    "convertVirtualTile",
    "getConsecutive",
    "cyclesFrom",
    "addStreamingMemoryFunction",
    "BinaryOp1D",
}
"""Beginnings and endings of names that the inventories abbreviate."""
OF_REPORTS = {
    "numReplicas",
    "clockFrequency",
    "bytesPerTile",
    "bytesPerIPU",
    "numVertices",
    "numComputeSets",
    "numVars",
    "includingGaps",
    "excludingGaps",
    "livenessProgramSteps",
    "controlPrograms",
    "activeCycles",
    "cyclesTo",
    "isStreamCopy",
    "ProgramVisitor",
}
"""Attributes of the profile's Python module, which :mod:`abele.report` has under names of its own."""
EXPRESSIONS = [
    "Abs",
    "Asin",
    "BitwiseNot",
    "Cbrt",
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "Expm1",
    "Exp2",
    "Floor",
    "GeluErf",
    "Inv",
    "IsFinite",
    "IsInf",
    "IsNaN",
    "Log",
    "Log1p",
    "Not",
    "Neg",
    "NearbyInt",
    "Popcount",
    "Relu",
    "Signum",
    "Sin",
    "Tan",
    "Tanh",
    "Round",
    "Sqrt",
    "Square",
    "Sigmoid",
    "Rsqrt",
    "Trunc",
    "Add",
    "Atan2",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "BitwiseXnor",
    "Divide",
    "Equal",
    "Gte",
    "Gt",
    "InvStdDevToVariance",
    "Lte",
    "And",
    "Or",
    "Lt",
    "Max",
    "Min",
    "Mul",
    "NotEqual",
    "Pow",
    "Rem",
    "Shl",
    "Shr",
    "ShrSE",
    "Sub",
    "VarianceToInvStdDev",
    "Select",
    "Clamp",
    "Cast",
    "Hash",
    "Const",
    "ConstHalf",
    "PlaceHolder",
    "_1",
    "_9",
    "Any",
]
ELEMENT_WISE = [
    "abs",
    "inv",
    "neg",
    "sqrt",
    "rsqrt",
    "square",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "tanh",
    "sigmoid",
    "geluErf",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "ceil",
    "floor",
    "round",
    "nearbyint",
    "cbrt",
    "signum",
    "isFinite",
    "logicalNot",
    "bitwiseNot",
    "popcount",
    "countLeadingZeros",
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "pow",
    "atan2",
    "max",
    "min",
    "eq",
    "neq",
    "lt",
    "lteq",
    "gt",
    "gteq",
    "logicalAnd",
    "logicalOr",
    "bitwiseAnd",
    "bitwiseOr",
    "bitwiseXor",
    "bitwiseXnor",
    "shiftLeft",
    "shiftRight",
    "shiftRightSignExtend",
    "varianceToInvStdDev",
    "invStdDevToVariance",
    "select",
    "clamp",
]


def names_of(text: str) -> set[str]:
    """Names that the text quotes or stresses, as far as they look like names of C++."""
    found = set()
    for quoted, stressed in SPAN.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        for name, called in IDENTIFIER.findall(quoted or stressed):
            mixed = re.search("[A-Z]", name) and re.search("[a-z]", name)
            if mixed or called or (name.isupper() and "_" in name):
                found.add(name)
    return found - PARAMETERS - PROSE - PARTS - OF_REPORTS


@cache
def spaces() -> list[Any]:
    """Modules, namespaces and classes in which a name may be."""
    from abele import gcl, poplar, poplin, popnn, popops, poprand, poputil
    from abele.poplar import program
    from abele.poplibs import popsparse
    from abele.poplibs.poplin.conv_params import cpp_params

    libraries = [poplar, program, poputil, poputil.graphfn, popops, poplin, popnn, poprand, gcl, poplin.multiconv]
    libraries += [popops.expr, popops.expr_names, popops.embedding, popops.rearrange, popops.padding, poplin.matmul]
    libraries += [popnn.lstm, popnn.gru, popnn.rnn, popnn.ctc, popnn.ctc_infer, popnn.pooling]
    libraries += [popnn.bn, popnn.gn, popnn.ln, popnn.in_]
    libraries += [popsparse, popsparse.dynamic, popsparse.static_, popsparse.experimental, popsparse.formats]
    classes = [item for library in libraries for item in vars(library).values() if inspect.isclass(item)]
    return [*libraries, *classes, cpp_params.CppConvParams, poplar.StreamCallback.Result, poplar.IPUModel()]


@cache
def option_names() -> set[str]:
    """Names of options, and their parts, of the engine and of every library function."""
    from abele.poplar.host import STREAM_OPTIONS
    from abele.poplibs.poputil.options import Option
    from abele.runtime.engine.options import OPTIONS, VARIABLES

    for library in ("popops", "poplin", "popnn", "popsparse", "gcl"):
        package = ROOT / "src" / "abele" / "poplibs" / library
        for file in package.rglob("*.py"):
            relative = file.relative_to(ROOT / "src").with_suffix("")
            importlib.import_module(".".join(p for p in relative.parts if p != "__init__"))
    import sys

    found = {*OPTIONS, *VARIABLES, *STREAM_OPTIONS, "POPLAR_LOG_LEVEL"}
    for name, module in list(sys.modules.items()):
        if name.startswith("abele.poplibs"):
            tables = [v for v in vars(module).values() if isinstance(v, dict)]
            found |= {key for table in tables for key, value in table.items() if isinstance(value, Option)}
    return found | {part for name in found for part in name.split(".")}


def is_there(name: str) -> bool:
    """True if a name can be used."""

    def has(space: Any) -> bool:
        return hasattr(space, name) or name in getattr(space, "__annotations__", {})

    return any(has(space) for space in spaces()) or name in option_names()


@cache
def documented() -> set[str]:
    """Names that the documents speak of."""
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    return {word for text in texts for word in re.findall(r"\w+", text)}


def counted(file: str) -> tuple[int, int, list[str]]:
    """Names of an inventory, how many of them are there, and those that are neither there nor explained."""
    assert REFERENCE is not None
    names = names_of((REFERENCE / file).read_text(encoding="utf-8"))
    absent = {name for name in names if not is_there(name)}
    return len(names), len(names) - len(absent), sorted(absent - documented())


@pytest.mark.skipif(REFERENCE is None, reason="the inventories are not here")
@pytest.mark.parametrize("file", FILES)
def test_inventory__every_name__is_there_or_explained(file: str) -> None:
    total, there, unexplained = counted(file)
    assert total > 100
    assert there > 0.8 * total
    assert unexplained == []


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions__every_name_of_poplibs__is_in_expr(name: str) -> None:
    from abele import popops

    assert hasattr(popops.expr, name)


@pytest.mark.parametrize("name", ELEMENT_WISE)
def test_element_wise__every_function_of_poplibs__has_its_three_forms(name: str) -> None:
    from abele import popops

    assert all(callable(getattr(popops, name + form)) for form in ("", "InPlace", "WithOutput"))


@pytest.mark.parametrize("name", ["LONG", "UNSIGNED_LONG", "DOUBLE"])
def test_type__that_only_the_host_has__is_refused_in_words(name: str) -> None:
    from abele import poplar

    with pytest.raises(TypeMismatchError, match=f"{name} is no element type of the machine"):
        getattr(poplar, name)
    assert not hasattr(poplar, name)


if __name__ == "__main__":
    for inventory in FILES:
        every, present, missing = counted(inventory)
        print(f"{inventory}: {every} names, {present} there, {every - present - len(missing)} explained; {missing}")
