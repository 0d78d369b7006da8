"""Options of matmuls and convolutions, by PopLibs' names, and the planner's constraints that they give."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import Any

from abele.errors import InvalidOptionError, TypeMismatchError
from abele.numerics import ElementType, as_element_type, f8_143, f16, f32
from abele.poplibs.poputil.options import PROPORTION, Options, choice, element_type, flag, integer, read_options, text

_SUPPORTED = (f16, f32)

_CONV_PASSES = ("NONE", "INFERENCE_FWD", "TRAINING_FWD", "TRAINING_BWD", "TRAINING_WU")
_FC_PASSES = ("FC_INFERENCE_FWD", "FC_TRAINING_FWD", "FC_TRAINING_BWD", "FC_TRAINING_WU")

TRAINING_PASSES = ("TRAINING_FWD", "TRAINING_BWD", "TRAINING_WU")
"""Passes of a fully connected layer that is trained."""

_SHARED = {
    "availableMemoryProportion": PROPORTION,
    "partialsType": element_type(None),
    "partialsType.interTile": element_type(None),
    "partialsType.interIPU": element_type(None),
    "enableMultiStageReduce": flag(True),
    "enableFastReduce": flag(False),
    "enableConvDithering": flag(False),
    "remapOutputTensor": flag(True),
    "use128BitConvUnitLoad": flag(False),
    "gatherConvOutput": flag(False),
    "planConstraints": text(),
    "planConstraintsOutputFilename": text(),
    "convertQuarterToHalf": flag(False),
    "numIPUs": integer(1, 1),
    "tilesPerIPU": integer(0, 0),
}
CONV_OPTIONS = _SHARED | {"pass": choice("NONE", *_CONV_PASSES, *_FC_PASSES)}
"""Options of convolutions."""
MATMUL_OPTIONS = _SHARED | {
    "fullyConnectedPass": choice("NONE", *_CONV_PASSES),
    "inputRHSIsPreArranged": flag(False),
}
"""Options of matmuls."""


@dataclass(frozen=True)
class Types:
    """Element types of a contraction: inputs, partials, output."""

    dtype: ElementType
    partials: ElementType
    output: ElementType


@dataclass(frozen=True)
class SharedSplit:
    """The split of one pass of a layer, where its passes are planned together.

    Attributes:
        parts: Numbers of parts, by dimension.
        grains: Factor that parts of each dimension are multiples of.
        order: Dimensions in which the tiles are numbered, outermost first: passes agree on what lies where.
    """

    parts: tuple[tuple[str, int], ...]
    grains: tuple[tuple[str, int], ...]
    order: tuple[str, ...]


@dataclass(frozen=True)
class Planning:
    """Constraints that the planner obeys.

    Attributes:
        proportion: Share of a tile's memory for slices and partials.
        swaps: True if the matrix units hold the left operand, and the right one streams past; None for either.
        wide_loads: Weights enter the units by 128-bit loads.
        tiles: Tiles that are used at most; 0 for all.
        parts: Numbers of parts that are given, by dimension.
        method: Family or kind of vertex that is given, or empty.
        training_pass: Pass of a fully connected layer, by PopLibs' name, or empty.
        split: The split that the plan of all passes gives this one, or None.
        beside: Cycles, by kind of step, of a contraction that runs at the same time: time that it covers is free.
        copied: Sides that are written anew before: their copies take memory beside slices and partials.
        lasting: Sides whose copies further products read, where there are some.
    """

    proportion: float = PROPORTION.default
    swaps: bool | None = None
    wide_loads: bool = False
    tiles: int = 0
    parts: tuple[tuple[str, int], ...] = ()
    method: str = ""
    beside: tuple[tuple[str, int], ...] = ()
    training_pass: str = ""
    split: SharedSplit | None = None
    copied: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()

    @property
    def joint(self) -> bool:
        """True if operands are laid out for forward pass, backward pass and weight update together."""
        return self.training_pass != ""


DEFAULT = Planning()
"""Constraints where none are asked for."""


@dataclass(frozen=True)
class ContractionOptions:
    """Options of one call.

    Attributes:
        partials: Type of partial sums, or None.
        planning: Constraints that the planner obeys.
        dithered: True for convolutions to begin at a tile of their own.
        converts: True if 8-bit floats may be cast to halves where the chip does not multiply them.
    """

    partials: ElementType | None
    planning: Planning
    dithered: bool = False
    converts: bool = False


def read_settings(
    function: str,
    options: Options,
    partials_type: ElementType | str | None = None,
    available_memory_proportion: float | None = None,
    *,
    is_conv: bool = False,
) -> ContractionOptions:
    """Settings of a call, from PopLibs' options and the keywords for the commonest of them.

    Raises:
        InvalidOptionError: An unknown option, or a value that it does not take.
    """
    given = dict(options or {})
    if available_memory_proportion is not None:
        given["availableMemoryProportion"] = available_memory_proportion
    values = read_options(function, given, CONV_OPTIONS if is_conv else MATMUL_OPTIONS)
    way = values["pass"] if is_conv else values["fullyConnectedPass"]
    parts, method, swaps = _constraints(function, values["planConstraints"], is_conv=is_conv)
    planning = Planning(
        proportion=values["availableMemoryProportion"],
        swaps=swaps,
        training_pass=way if way in TRAINING_PASSES and not is_conv else "",
        wide_loads=values["use128BitConvUnitLoad"],
        tiles=values["tilesPerIPU"],
        parts=parts,
        method=method,
    )
    partials = values["partialsType"] if partials_type is None else as_element_type(partials_type)
    return ContractionOptions(partials, planning, values["enableConvDithering"], values["convertQuarterToHalf"])


METHODS = {"AMP": "amp", "SLIC": "slic", "VMAC": "vmac", "HMAC": "hmac", "OUTER_PRODUCT": "outer_product"}
"""Kinds of vertices by PopLibs' names: how the names of ours begin."""
SPLITS = {
    "convGroupSplit": "g",
    "batchSplit": "b",
    "outChanSplit": "co",
    "inChanSplit": "ci",
    "fieldSplit": "o",
    "kernelSplit": "k",
}
"""Dimensions of a contraction by PopLibs' names of how they are split."""


TRANSFORM = "swapOperands"
"""The transform that may be given, of matrix products."""


def _constraints(function: str, given: str, *, is_conv: bool) -> tuple[tuple[tuple[str, int], ...], str, bool | None]:
    """Parts, kind of vertex and swapping of operands that ``planConstraints`` asks for."""
    if not given:
        return (), "", None
    try:
        tree = json.loads(given)
        wanted = tree.get("method", {}).get("type", "")
        partition = tree.get("0", {}).get("partition", {})
        parts: dict[str, int] = {}
        for name, value in partition.items():
            parts |= _parts(SPLITS[name], value)
        swaps = _swaps(tree.get("0", {}).get("transform", {}), is_conv=is_conv)
        return tuple(sorted(parts.items())), METHODS[wanted] if wanted else "", swaps
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        what = f"no split, method or transform {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidOptionError(
            f"{function}: option 'planConstraints' is not understood: {what}",
            because='it is JSON such as {"method": {"type": "AMP"}, "0": {"partition": {"batchSplit": 4, '
            '"inChanSplit": {"parallel": 2}, "fieldSplit": [7, 1]}}}',
            remedy=f"splits are {', '.join(SPLITS)}; methods are {', '.join(METHODS)}; "
            f"of transforms, {TRANSFORM} of matmuls",
        ) from None


def _swaps(transform: dict[str, Any], *, is_conv: bool) -> bool | None:
    """Value of ``swapOperands`` in a plan's ``transform``, or None; convolutions never swap."""
    for name in transform:
        if name != TRANSFORM:
            raise KeyError(name)
    swaps = transform.get(TRANSFORM)
    if swaps not in (None, False, True) or (is_conv and swaps):
        raise ValueError(f"{TRANSFORM} is {swaps!r}, it is {'false' if is_conv else 'true or false'}")
    return None if swaps is None else bool(swaps)


def _parts(dim: str, value: Any) -> dict[str, int]:
    if dim in ("o", "k"):
        return {f"{dim}{d}": int(n) for d, n in enumerate(value)}
    if not isinstance(value, dict):
        return {dim: int(value)}
    if value.get("serial", 1) != 1:
        raise ValueError(f"{value['serial']!r} serial parts; how many there are is the planner's choice")
    return {dim: int(value["parallel"])}


def resolve_types(name: str, dtypes: dict[str, ElementType], output_type: Any, partials_type: Any) -> Types:
    """Types of a contraction, from its operands' types and the user's choice.

    Args:
        name: The operation, for errors.
        dtypes: Type of each operand by its name.
        output_type: Type of the result; by default that of the operands.
        partials_type: Type of partial sums; by default f32.

    8-bit floats may differ in format and scale. Their sums are halves, and so is the result; a warning says so where
    other partials were asked for. Source: low_precision.md §1.3. ``dtype`` of their types is F143 without a scale,
    which stands for all of them: what the work takes does not depend on format or scale.

    Raises:
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take.
    """
    if any(t.is_quarter for t in dtypes.values()):
        return _quarter_types(name, dtypes, output_type, partials_type)
    kinds = list(dict.fromkeys(dtypes.values()))
    listed = ", ".join(f"{n} is {t}" for n, t in dtypes.items())
    if len(kinds) > 1:
        raise TypeMismatchError(f"{name}: operands differ in type: {listed}", remedy="cast one of them")
    chosen = Types(
        kinds[0],
        f32 if partials_type is None else as_element_type(partials_type),
        kinds[0] if output_type is None else as_element_type(output_type),
    )
    for role, kind in (("operands", chosen.dtype), ("partials", chosen.partials), ("output", chosen.output)):
        if kind not in _SUPPORTED:
            raise TypeMismatchError(f"{name}: {role} of type {kind}; f16 and f32 are supported", because=listed)
    if chosen.dtype == f32 and chosen.partials == f16:
        raise TypeMismatchError(
            f"{name}: f32 operands cannot be summed in f16 partials", remedy="partials_type=f32, or f16 operands"
        )
    return chosen


def _quarter_types(name: str, dtypes: dict[str, ElementType], output_type: Any, partials_type: Any) -> Types:
    """The types of a contraction of 8-bit floats; see :func:`resolve_types`."""
    listed = ", ".join(f"{n} is {t}" for n, t in dtypes.items())
    if not all(t.is_quarter for t in dtypes.values()):
        raise TypeMismatchError(
            f"{name}: 8-bit floats are multiplied by 8-bit floats alone: {listed}",
            remedy="popops.cast one of them, to an 8-bit float or from it",
        )
    output = f16 if output_type is None else as_element_type(output_type)
    if output != f16:
        raise TypeMismatchError(
            f"{name}: products of 8-bit floats are f16, {output} is asked for",
            because=listed,
            remedy="output_type=f16, and popops.cast the result",
        )
    partials = f16 if partials_type is None else as_element_type(partials_type)
    if partials not in _SUPPORTED:
        raise TypeMismatchError(f"{name}: partials of type {partials}; f16 and f32 are supported", because=listed)
    if partials != f16:
        warnings.warn(f"{name}: partial sums of 8-bit floats are f16, not {partials}", QuarterPartialsWarning, 2)
    return Types(f8_143, f16, f16)


class QuarterPartialsWarning(UserWarning):
    """Partial sums of products of 8-bit floats were requested in a type other than f16, which they have."""
