"""Options of dynamic sparse products, by PopLibs' names.

Source of the defaults: popsparse.md §3.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

from abele.errors import InvalidOptionError
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poputil.options import Options, element_type, flag, number, read_options, text

DYNAMIC_OPTIONS = {
    "availableMemoryProportion": number(0.6, 0.0),
    "metaInfoBucketOversizeProportion": number(0.3, 0.0),
    "partialsType": element_type(f32),
    "sharedBuckets": flag(True),
    "doGradAPass": flag(False),
    "doGradWPass": flag(False),
    "enableStructuredRearrangements": flag(True),
    "partitioner.optimiseForSpeed": flag(True),
    "partitioner.forceBucketSpills": flag(False),
    "partitioner.useActualWorkerSplitCosts": flag(False),
    "planConstraints": text(),
}
"""Options of matrix products and of fully connected layers."""


class HalfPartialsWarning(UserWarning):
    """Half partials of a product by elements, which is summed in f32 all the same."""


@dataclass(frozen=True)
class DynamicOptions:
    """Options of one plan; everything that decides it, and how patterns are placed.

    Attributes:
        proportion: Share of a tile's memory for temporaries; 0 leaves no plan.
        oversize: Share by which buckets are larger than an even pattern needs.
        partials: Type of partial sums.
        shared: True if forward pass and gradient of the input walk one list.
        grad_a: True if the gradient of the input is planned.
        grad_w: True if the gradient of the weights is planned.
        structured: Layout of dense operands by blocks.
        nearest: True for spills to go to the nearest bucket, False to the emptiest.
        force_spills: True to put a part of each bucket elsewhere, for tests.
        actual_costs: True to split rows over workers by the vertices' cycles rather than by values.
        parts: Numbers of parts that are given, by dimension x, y or z.
        moves_buckets: True if gradients of weights move buckets, False if dense slices, None for the cheaper.
        dense: True if the plan is that of a dense matrix (``useDense``).
    """

    proportion: float = 0.6
    oversize: float = 0.3
    partials: ElementType = f32
    shared: bool = True
    grad_a: bool = False
    grad_w: bool = False
    structured: bool = True
    nearest: bool = True
    force_spills: bool = False
    actual_costs: bool = False
    parts: tuple[tuple[str, int], ...] = ()
    moves_buckets: bool | None = None
    dense: bool = False


def read_dynamic_options(
    function: str, options: Options, *, by_element: bool, both_ways: bool = False
) -> DynamicOptions:
    """Options of a call.

    Args:
        function: The call, for errors.
        options: Values by PopLibs' names.
        by_element: True for patterns of single elements, whose partials are always f32.
        both_ways: True for matrix products: one tensor serves S·X and Sᵀ·X, so that both are planned.

    Raises:
        InvalidOptionError: An unknown option, or a value that it does not take.
    """
    values = read_options(function, options, DYNAMIC_OPTIONS)
    partials = values["partialsType"] or f32
    if partials not in (f16, f32):
        raise InvalidOptionError(f"{function}: option 'partialsType' is half or float, got {partials}")
    if by_element and partials == f16:
        warnings.warn(f"{function}: products by elements are summed in f32, not f16", HalfPartialsWarning, 3)
        partials = f32
    parts, moves, dense = _constraints(function, values["planConstraints"])
    return DynamicOptions(
        proportion=values["availableMemoryProportion"],
        oversize=values["metaInfoBucketOversizeProportion"],
        partials=partials,
        shared=values["sharedBuckets"],
        grad_a=values["doGradAPass"] or both_ways,
        grad_w=values["doGradWPass"],
        structured=values["enableStructuredRearrangements"],
        nearest=values["partitioner.optimiseForSpeed"],
        force_spills=values["partitioner.forceBucketSpills"],
        actual_costs=values["partitioner.useActualWorkerSplitCosts"],
        parts=parts,
        moves_buckets=moves,
        dense=dense,
    )


def _constraints(function: str, given: str | None) -> tuple[tuple[tuple[str, int], ...], bool | None, bool]:
    """Parts, way of the weights' gradient, and ``useDense`` of ``planConstraints``."""
    if not given:
        return (), None, False
    try:
        tree = json.loads(given)
        _known(tree, "partition", "exchange", "useDense")
        partition, exchange = tree.get("partition", {}), tree.get("exchange", {})
        _known(partition, "x", "y", "z")
        _known(exchange, "gradWExchangeBuckets")
        parts = tuple(sorted((dim, _positive(dim, n)) for dim, n in partition.items()))
        return parts, _boolean(exchange.get("gradWExchangeBuckets")), bool(_boolean(tree.get("useDense", False)))
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidOptionError(
            f"{function}: option 'planConstraints' is not understood: {error}",
            because='it is JSON such as {"partition": {"x": 6, "y": 4, "z": 1}, '
            '"exchange": {"gradWExchangeBuckets": true}, "useDense": false}',
        ) from None


def _known(tree: dict[str, object], *names: str) -> None:
    if not isinstance(tree, dict):
        raise ValueError(f"{tree!r} is no object")
    for name in tree:
        if name not in names:
            raise ValueError(f"no constraint {name!r}; there are {', '.join(names)}")


def _positive(dim: str, parts: object) -> int:
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        raise ValueError(f"{parts!r} parts of {dim}")
    return parts


def _boolean(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
