"""Host kernels of contractions: plain loop nests over the logical indices of the operands.

Padding is a load with a fill. Where inputs are dilated, outputs and kernel positions fall into residue classes, one
nest each, in which every index is affine. Where the kernel is the larger operand, as in weight gradients of strided
layers, loops run over positions of the input instead: one nest without classes, in which the input is read in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

from abele.graph import Tensor
from abele.kernels.nest.ir import Affine, HostKernel, Load, Nest, Store, affine, as_expr
from abele.numerics import ElementType, f32
from abele.poplibs.poplin.contraction.operand import Operand, operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.axis import Axis, ResidueClass

# Factors by which sums of products of 8-bit floats are multiplied, beyond the scales of their types.


@dataclass(frozen=True)
class Scaling:
    """A power of two: a number that is known now, or a tensor.

    The machine has it in the metadata of an operand, so it costs no instruction: products come out scaled.

    Attributes:
        log2: Its exponent.
        factor: The power itself, one f32, where only the program knows it; ``log2`` is 0 then.
    """

    log2: int = 0
    factor: Tensor | None = None

    @property
    def kind(self) -> Literal["", "number", "tensor"]:
        """Form in which vertices get the factor: a compile-time number, a tensor, or none."""
        return "tensor" if self.factor is not None else "number" if self.log2 else ""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The factor as an operand of calls, if it is one."""
        return () if self.factor is None else (self.factor,)

    def fields(self, num: int) -> dict[str, Any]:
        """Field ``factor`` of ``num`` vertices, if they have one."""
        if self.factor is not None:
            return {"factor": self.factor.reshape((1,)).broadcast(num, 0)}
        return {"factor": 2.0**self.log2} if self.kind else {}


UNSCALED = Scaling()


@dataclass(frozen=True)
class Onto:
    """A sum that a product is added to, in place of a tensor of its own.

    Attributes:
        total: The sum, of the product's shape.
        scale: Factor of the product.
        product: Element type of the product, which it is rounded to before it is added.
    """

    total: Tensor
    scale: float
    product: ElementType


# Bindings: a user's tensor, and which dimension of a contraction each of its dimensions is.

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class Binding:
    """A tensor with a role for each of its dimensions.

    Attributes:
        tensor: The tensor as the library call is given it.
        roles: For each dimension the name of the contraction's dimension, or ``g*`` and a name where the groups are
            folded into it, outermost.
        groups: Groups of the contraction.
    """

    tensor: Tensor
    roles: tuple[str, ...]
    groups: int

    def operand(self) -> Operand:
        """The tensor with folded groups split off, dimensions named."""
        return self._operand

    @cached_property
    def _operand(self) -> Operand:
        shape: list[int] = []
        dims: list[str] = []
        for extent, role in zip(self.tensor.shape, self.roles, strict=True):
            if role.startswith("g*"):
                shape += [self.groups, extent // self.groups]
                dims += ["g", role[2:]]
            else:
                shape.append(extent)
                dims.append(role)
        return operand(self.tensor.reshape(shape), dims)

    def locate(self, at: Mapping[str, Affine]) -> Index:
        """Index of the element at a point of the contraction, given by dimension name."""
        return tuple(
            at["g"] * (extent // self.groups) + at[role[2:]] if role.startswith("g*") else at[role]
            for extent, role in zip(self.tensor.shape, self.roles, strict=True)
        )


def field_roles(name: str, rank: int) -> tuple[str, ...]:
    """Roles of ``rank`` field dimensions: the inputs ``i``, the kernel ``k`` or the outputs ``o``."""
    return tuple(f"{name}{d}" for d in range(rank))


def contraction_kernel(
    problem: Contraction, operands: Sequence[Binding], scaling: Scaling = UNSCALED, onto: Onto | None = None
) -> HostKernel:
    """The kernel of a contraction of three operands: the input, the weights and the output.

    Where sums are scaled, they are added up in a temporary first; the factor of a tensor is a third input. So they are
    where they are added onto a total, which is both the third input and the output.
    """
    if onto is not None:
        return _added_kernel(problem, operands, onto)
    shapes = tuple(operand.tensor.shape for operand in operands)
    types = tuple(operand.tensor.dtype for operand in operands)
    if not scaling.kind:
        return HostKernel(shapes, types, 2, 1, _nests(problem, operands, 2))
    factors = 1 if scaling.kind == "tensor" else 0
    out, sums = 2 + factors, 3 + factors
    factor = Load(2, ()) if factors else as_expr(2.0**scaling.log2)
    dims = {f"d{i}": n for i, n in enumerate(shapes[2])}
    at = tuple(map(affine, dims))
    scaled = Nest(tuple(dims.items()), (Store(out, at, Load(sums, at) * factor),))
    between, between_types = ((),) * factors, (f32,) * factors
    return HostKernel(
        (*shapes[:2], *between, shapes[2], shapes[2]),
        (*types[:2], *between_types, types[2], f32),
        2 + factors,
        1,
        (*_nests(problem, operands, sums), scaled),
    )


def _added_kernel(problem: Contraction, operands: Sequence[Binding], onto: Onto) -> HostKernel:
    """The kernel that adds a contraction to a total."""
    shape, kind = onto.total.shape, onto.total.dtype
    shapes = tuple(operand.tensor.shape for operand in operands[:2])
    types = tuple(operand.tensor.dtype for operand in operands[:2])
    dims = {f"d{i}": n for i, n in enumerate(shape)}
    at = tuple(map(affine, dims))
    added = Load(4, at) if onto.scale == 1.0 else Load(4, at) * as_expr(onto.scale)
    nest = Nest(tuple(dims.items()), (Store(3, at, Load(2, at) + added),))
    return HostKernel(
        (*shapes, shape, shape, shape), (*types, kind, kind, onto.product), 3, 1, (*_nests(problem, operands, 4), nest)
    )


def _nests(problem: Contraction, operands: Sequence[Binding], target: int) -> tuple[Nest, ...]:
    """The nests that add up products in operand ``target``."""
    if _is_better_turned(problem.axes):
        return (_turned_nest(problem, operands, target),)
    nests = [
        _nest(problem, phases, operands, target, first=number == 0)
        for number, phases in enumerate(product(*(list(axis.phases()) for axis in problem.axes)))
    ]
    return tuple(nests) or (_zero(operands[2].tensor.shape, target),)


def _nest(
    problem: Contraction, phases: tuple[ResidueClass, ...], operands: Sequence[Binding], target: int, *, first: bool
) -> Nest:
    """Nest of one combination of residue classes; later ones add onto the first's results."""
    extents = {"g": problem.groups, "b": problem.batch, "co": problem.out_channels}
    index = {d: affine(d) for d in ("g", "b", "co", "ci")}
    for d, phase in enumerate(phases):
        extents[f"o{d}"] = phase.num_outputs
        index[f"o{d}"] = affine((f"o{d}", phase.out_step), const=phase.out_start)
    extents["ci"] = problem.in_channels
    for d, phase in enumerate(phases):
        extents[f"k{d}"] = phase.num_kernel
        index[f"k{d}"] = affine((f"k{d}", phase.kernel_step), const=phase.kernel_start)
        index[f"i{d}"] = affine((f"o{d}", phase.in_per_output), (f"k{d}", phase.in_per_kernel), const=phase.in_start)
    return _product(extents, index, operands, target, first=first)


def _product(
    extents: dict[str, int], index: dict[str, Affine], operands: Sequence[Binding], target: int, *, first: bool
) -> Nest:
    """The nest that adds up products of input and weights at ``index``."""
    unit = {d: affine(0) for d, n in extents.items() if n == 1}
    index = {d: a.substitute(unit) for d, a in index.items()}
    extents = {d: n for d, n in extents.items() if n > 1}
    x, w = (_load(i, operands[i].locate(index), operands[i].tensor.shape, extents) for i in (0, 1))
    store = Store(target, operands[2].locate(index), x * w, "add", accumulate=not first)
    return Nest(tuple(extents.items()), (store,))


def _is_better_turned(axes: Sequence[Axis]) -> bool:
    """True if loops over input positions save residue classes and visit no more points.

    Every output and input then meet at one kernel position, or at none where that lies outside.
    """
    whole = all(abs(axis.kernel_step) == 1 and axis.kernel >= 2 * axis.outputs for axis in axes)
    return whole and any(axis.in_step > 1 for axis in axes)


def _turned_nest(problem: Contraction, operands: Sequence[Binding], target: int) -> Nest:
    """The one nest over outputs and input positions; kernel positions follow from them."""
    extents = {"g": problem.groups, "b": problem.batch, "co": problem.out_channels}
    extents |= {f"o{d}": axis.outputs for d, axis in enumerate(problem.axes)}
    extents |= {"ci": problem.in_channels} | {f"i{d}": axis.inputs for d, axis in enumerate(problem.axes)}
    index = {d: affine(d) for d in extents} | {f"k{d}": _kernel_position(d, a) for d, a in enumerate(problem.axes)}
    return _product(extents, index, operands, target, first=True)


def _kernel_position(number: int, axis: Axis) -> Affine:
    """k where ``axis`` says in_step·i = out_step·o ± k + offset."""
    place = affine((f"i{number}", axis.in_step), (f"o{number}", -axis.out_step), const=-axis.offset)
    return place * axis.kernel_step


def _load(operand: int, index: Index, shape: tuple[int, ...], extents: dict[str, int]) -> Load:
    """A load that reads zero outside, where it can get there."""
    bounds = [a.bounds(extents) for a in index]
    inside = all(low >= 0 and high < n for (low, high), n in zip(bounds, shape, strict=True))
    return Load(operand, index, None if inside else 0.0)


def _zero(shape: tuple[int, ...], target: int) -> Nest:
    """Nest that clears an output without inputs."""
    dims = {f"d{i}": n for i, n in enumerate(shape)}
    return Nest(tuple(dims.items()), (Store(target, tuple(map(affine, dims)), as_expr(0.0)),))
