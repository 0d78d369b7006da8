"""Dropout, of elements and of whole slices."""

from __future__ import annotations

from numbers import Real

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.elementwise.map import map
from abele.poplibs.popops.expr import Cast, PlaceHolder, random_bits, select
from abele.poplibs.poprand.distributions import happens
from abele.poplibs.poprand.draw import DrawCycles, generate
from abele.poplibs.poprand.seed import seed_or_own
from abele.poplibs.poputil.broadcast import broadcast_shape
from abele.poplibs.poputil.layout import clone, create_output_like


def dropout(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    tensor: Tensor,
    keep_probability: float,
    prog: Sequence,
    *,
    scale: float | None = None,
    reference: Tensor | None = None,
    name: str = "dropout",
) -> Tensor:
    """``tensor`` with each element kept with ``keep_probability`` and scaled, or else 0.

    The same seed and modifier keep the same elements, whatever the layout: the gradient is dropout of the output
    gradient with the same arguments.

    Args:
        graph: Graph in which vertices and the result are made.
        seed: u32[2]; None for the graph's own seed, which moves on with every use, so that nothing replays it.
        modifier: Chooses among independent streams of one seed.
        tensor: Floating point.
        keep_probability: Share of elements that are kept.
        prog: Sequence that the step is appended to.
        scale: Multiplies kept elements; 1 / ``keep_probability`` by default.
        reference: Layout of the result; by default that of ``tensor``. The shape must be that of ``tensor``.
        name: Name of the step.

    Raises:
        TensorError: A seed or a reference of another shape.
        TypeMismatchError: A seed of another type, or a tensor that is not floating point.
        InvalidOptionError: A probability outside [0, 1], or a scale that is no number.
    """
    _check(tensor, name, scale)
    source = seed_or_own(graph, seed, prog, name)
    keeps = happens(random_bits(2, modifier), keep_probability, name)
    factor = _factor(scale, keep_probability)
    if reference is None:
        out = create_output_like(graph, [tensor], tensor.shape, tensor.dtype, f"{name}/out")
    else:
        _check_reference(tensor, reference, name)
        out = clone(graph, reference, f"{name}/out", tensor.dtype)
    kept = select(PlaceHolder(1) * factor, 0.0, keeps)
    # Source: machine reference §4.11 (Dropout): 6 + 6·24 + 2·n/v.
    generate(graph, kept, [tensor, source], out=out, prog=prog, name=name, cycles=DrawCycles(6, 24, 2.0, out.dtype))
    return out


def shaped_dropout(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    tensor: Tensor,
    reference: Tensor,
    keep_probability: float,
    prog: Sequence,
    *,
    scale: float | None = None,
    name: str = "shaped_dropout",
) -> Tensor:
    """Dropout of whole slices: one choice for each element of ``reference``, which broadcasts to ``tensor``.

    Other arguments and errors as for :func:`dropout`.
    """
    _check(tensor, name, scale)
    source = seed_or_own(graph, seed, prog, name)
    if broadcast_shape(name, [tensor.shape, reference.shape]) != tensor.shape:
        _check_reference(tensor, reference, name)
    keeps = happens(random_bits(1, modifier), keep_probability, name)
    mask = clone(graph, reference, f"{name}/mask", tensor.dtype)
    kept = Cast(select(_factor(scale, keep_probability), 0.0, keeps), tensor.dtype)
    # Source: machine reference §4.11 (Bernoulli), then a broadcast product.
    cycles = DrawCycles(4, 23 if tensor.dtype.bits == 32 else 21, 4.0, mask.dtype)
    generate(graph, kept, [source], out=mask, prog=prog, name=f"{name}_mask", cycles=cycles)
    return map(graph, lambda x, m: x * m, [tensor, mask], prog, name)


def _factor(scale: float | None, keep_probability: float) -> float:
    if scale is not None:
        return float(scale)
    return 1.0 / keep_probability if keep_probability else 0.0


def _check(tensor: Tensor, name: str, scale: float | None) -> None:
    if scale is not None and not isinstance(scale, Real):
        raise InvalidOptionError(f"{name}: scale is {scale!r}, it must be a number")
    if not tensor.dtype.is_float:
        raise TypeMismatchError(f"{name}: {tensor!r} is {tensor.dtype}, it must be floating point")


def _check_reference(tensor: Tensor, reference: Tensor, name: str) -> None:
    if reference.shape != tensor.shape:
        raise TensorError(
            f"{name}: the reference {reference!r} of shape {list(reference.shape)} does not go with {tensor!r} of "
            f"shape {list(tensor.shape)}"
        )
