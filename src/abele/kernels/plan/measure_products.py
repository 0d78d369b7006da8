"""Rates of the ways to run matrix products, measured once per host for each class of products.

Every way runs the points of a class as plans of their own, with the memory, drivers and shares that programs have, on
one thread. A rate is a share of the machine's arithmetic (:mod:`abele.host_facts.calm`), so that ways measured at
different times compare: a library may be there in one process and not in the next. Which way multiplies decides bits,
so what was found is kept, and found again by all that it depends on: the CPU, its caches, the code of plans, and the
library's version. Where the machine does not come to rest nothing is kept, and this process goes by what is usual.

Example: a point takes some 15 ms as loops, of which LLVM has 11, and 10 ms as the packed routine; a class has 18.
"""

from __future__ import annotations

import logging
import math
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from abele.host_facts import UnsettledError, measured, share_of_arithmetic
from abele.kernels.nest.binding import BoundKernel, Buffer, bind, bound_calls
from abele.kernels.nest.ir import Affine, Expr, HostKernel, affine, load, nest, select, store
from abele.kernels.nest.loop_nest import Fetch
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.plan.assemble import assemble
from abele.kernels.plan.functions import FunctionProgram, TaskFunction
from abele.kernels.plan.repeated import RepeatedPlan
from abele.kernels.plan.schedule_functions import choose_schedules, generate_code, modules_of
from abele.kernels.routines.costs import LOOPS, PACKED, ProductCosts
from abele.kernels.routines.product_class import CORNERS, POINTS, ProductClass, with_traits
from abele.kernels.target import HostTarget, host_target
from abele.llvm.cache import code_digest
from abele.llvm.flush import denormals_flushed
from abele.llvm.host import cache_bytes, is_elsewhere, last_cache_bytes, near_cache_ways
from abele.llvm.jit import compile_all
from abele.numerics import bf16, f32

LOG = logging.getLogger(__name__)
T = TypeVar("T")
Shape = tuple[int, int, int]
"""Rows, columns and summed elements of a product."""

VERSION = 2
"""Raised when rates are measured in another way."""
_CODE = ("kernels/code", "kernels/nest", "kernels/products", "kernels/routines", "kernels/schedule")
"""Folders of the code that rates depend on."""
_LEFT_BLOCK, _SHORT_BLOCK = 16, 4
"""Elements of the blocks that are measured: of left operands, and of right ones and results."""
_PASSED = (288, 288, 12)
"""Product whose results are many for its arithmetic."""
_lock = threading.RLock()
_unsettled: set[tuple[str, int]] = set()
"""Facts that could not be measured in this process."""
RunPasses = Callable[..., object]
"""The function :func:`abele.kernels.plan.passes.run_passes`, whose module imports this one."""


def measured_target(run: RunPasses) -> HostTarget:
    """CPU that code is made for, with products chosen by measurements on it; ``run`` makes the plans to measure.

    Nothing is measured for CPUs other than this machine's.
    """
    target = host_target()
    if target.products is None or target.products.forced or is_elsewhere():
        return target
    return replace(target, products=replace(target.products, rates=MeasuredRates(run)))


class MeasuredRates:
    """Rates that are measured when they are first asked for; equal to any other, so that choices are remembered."""

    def __init__(self, run: RunPasses) -> None:
        self.run = run

    def shares(self, way: str, of: ProductClass, *, anew: bool = False) -> tuple[float, ...] | None:
        """Rates of a way at the points of a class, as shares of the machine's arithmetic; None: not to be measured.

        Args:
            way: Way to run products.
            of: The class.
            anew: True to measure them now, whatever is known.
        """
        bare = self.measured(way, of.bare, anew=anew)
        ratios = [self._ratios(way, trait, anew=anew) for trait in of.traits]
        known = [ratio for ratio in ratios if ratio is not None]
        if bare is None or len(known) < len(ratios):
            return None
        return with_traits(bare, known) if known else bare

    def measured(self, way: str, of: ProductClass, *, anew: bool = False) -> tuple[float, ...] | None:
        """Rates of a way at the points at which the class itself is measured."""

        def measure() -> tuple[float, ...]:
            return tuple(float(f"{share:.4g}") for share in self._shares(way, of, points))

        points = CORNERS if of.traits else POINTS
        return _kept(f"products-{way}-{of.name}", _version(points, way), tuple[float, ...], measure, anew=anew)

    def _ratios(self, way: str, trait: ProductClass, *, anew: bool) -> list[float] | None:
        """Rates with a trait by those without, at the corners."""
        found, bare = self.measured(way, trait, anew=anew), self.measured(way, trait.bare)
        if found is None or bare is None:
            return None
        return [share / bare[POINTS.index(shape)] for share, shape in zip(found, CORNERS, strict=True)]

    def passing(self, *, anew: bool = False) -> float | None:
        """Cost of handing a result on through a cache, in multiply-adds of the machine; None: not to be measured."""

        def measure() -> float:
            found = []
            for way in (LOOPS, PACKED):
                plain, handed = (
                    _PASSED[2] / self._shares(way, ProductClass(), [_PASSED], with_relu=with_relu)[0]
                    for with_relu in (False, True)
                )
                found.append(handed - plain)
            return round(max(0.0, found[1] - max(0.0, found[0])), 3)

        return _kept("products-passing", _version(_PASSED, PACKED), float, measure, anew=anew)

    def spreading(self, *, anew: bool = False) -> float | None:
        """Cost for loops of each access to a result in a short block, in multiply-adds; None: not to be measured."""

        def measure() -> float:
            plain, spread = (
                _PASSED[2] / self._shares(LOOPS, ProductClass(), [_PASSED], in_blocks=in_blocks)[0]
                for in_blocks in (False, True)
            )
            return round(max(0.0, spread - plain), 3)

        return _kept("products-spreading", _version(_PASSED, LOOPS), float, measure, anew=anew)

    def _shares(
        self,
        way: str,
        of: ProductClass,
        shapes: Sequence[Shape],
        *,
        with_relu: bool = False,
        in_blocks: bool = False,
    ) -> list[float]:
        """Rates of products of some shapes; the code of all is made together."""
        target = host_target()
        assert target.products is not None
        costs: ProductCosts | None = replace(target.products, forced=True)
        if way in (LOOPS, PACKED):
            costs = replace(target.products, forced=True, library=None) if way == PACKED else None
        target = replace(target, products=costs)
        plans = [self.scheduled(of, shape, target, with_relu=with_relu, in_blocks=in_blocks) for shape in shapes]
        compile_all([module for _, program in plans for module in modules_of(program)])
        found = []
        for shape, (buffers, program) in zip(shapes, plans, strict=True):
            run = RepeatedPlan(buffers, assemble(generate_code(program)))
            with denormals_flushed():
                found.append(share_of_arithmetic(run, 2.0 * math.prod(shape)))
        return found

    def scheduled(
        self,
        of: ProductClass,
        shape: Shape,
        target: HostTarget,
        *,
        with_relu: bool = False,
        in_blocks: bool = False,
    ) -> tuple[list[Buffer], FunctionProgram]:
        """Buffers and functions of a product, alone or with a ReLU of its results, with their schedules."""
        buffers, calls = product_calls(of, shape, with_relu=with_relu, in_blocks=in_blocks)
        program = self.run(bound_calls(buffers, calls, target), after="shift_arrays", check=False)
        assert isinstance(program, FunctionProgram)
        crowded = [(0, "k")] * of.is_left_crowded + [(1, "j" if of.right_turned else "k")] * of.is_crowded
        for operand, dim in crowded:
            # Rows of a larger array would be a view, and what surrounds products of views is planned otherwise.
            rows, columns = buffers[operand].shape
            step = target.way_bytes // buffers[operand].type.bytes
            apart = -(-columns // step) * step
            program = _apart(program, operand, dim, apart)
            buffers[operand] = replace(buffers[operand], shape=(rows, apart))
        return buffers, choose_schedules(program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeasuredRates)

    def __hash__(self) -> int:
        return hash(MeasuredRates)


def _kept(name: str, version: int, kind: type[T], measure: Callable[[], T], *, anew: bool) -> T | None:
    """Fact about this host; None for the rest of this process where the machine does not come to rest."""
    with _lock:
        if (name, version) in _unsettled and not anew:
            return None
        try:
            found = measured(name, version, kind, measure, anew=anew)
        except UnsettledError as problem:
            if not _unsettled:
                LOG.warning("matrix products run as on a usual machine, for this process: %s here", problem)
            _unsettled.add((name, version))
            return None
        _unsettled.discard((name, version))
        return found


def product_calls(
    of: ProductClass, shape: Shape, *, with_relu: bool = False, in_blocks: bool = False
) -> tuple[list[Buffer], list[BoundKernel]]:
    """A product of a class, but with rows as near as they go, and a ReLU of its results if asked for.

    Args:
        of: The class.
        shape: Rows, columns and summed elements.
        with_relu: True for a ReLU.
        in_blocks: True for results in short blocks of columns.
    """
    extents = dict(zip("ijk", shape, strict=True))
    turned = (("k", "i") if of.left_turned else ("i", "k"), ("j", "k") if of.right_turned else ("k", "j"))
    type_ = bf16 if of.pairs else f32
    are_in_blocks = (of.left_in_blocks, of.right_in_blocks, in_blocks)
    # The nearest dim of a matrix in blocks is two digits; the slower one steps over all of the other dim.
    digits = {
        dims[1]: math.gcd(extents[dims[1]], size)
        for dims, is_in_blocks, size in zip(
            (*turned, ("i", "j")), are_in_blocks, (_LEFT_BLOCK, _SHORT_BLOCK, _SHORT_BLOCK), strict=True
        )
        if is_in_blocks
    }
    loops = {name: size for d, n in extents.items() for name, size in _digits_of(d, n, digits.get(d))}
    whole = {d: affine((f"{d}.1", digits[d]), f"{d}.0") if d in digits else affine(d) for d in extents}

    def placed(dims: tuple[str, str], is_in_blocks: bool) -> tuple[tuple[int, ...], tuple[Affine, ...]]:
        far, near = dims
        if not is_in_blocks:
            return (extents[far], extents[near]), (whole[far], whole[near])
        shape = (extents[near] // digits[near], extents[far], digits[near])
        return shape, (affine(f"{near}.1"), whole[far], affine(f"{near}.0"))

    places = [placed(dims, is_in) for dims, is_in in zip((*turned, ("i", "j")), are_in_blocks, strict=True)]
    shapes, (left, right, result) = [shape for shape, _ in places], [index for _, index in places]
    types = (type_, type_, f32)
    buffers = [
        Buffer(n, s, t, n < 2 or not with_relu, "abc"[n]) for n, (s, t) in enumerate(zip(shapes, types, strict=True))
    ]
    dot = nest(loops, store(2, result, load(0, *left) * load(1, *right), "add"))
    kernel = HostKernel(tuple(shapes), types, 2, 1, (dot,))
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "product")]
    if with_relu:
        buffers.append(Buffer(3, shapes[2], f32, True, "d"))
        value = load(0, *result)
        around = {d: n for d, n in loops.items() if d[0] in "ij"}
        relu = nest(around, store(1, result, select(value > 0.0, value, 0.0)))
        kernel = HostKernel((shapes[2],) * 2, (f32, f32), 1, 1, (relu,))
        calls.append(BoundKernel(kernel, tuple(map(bind, buffers[2:])), "relu"))
    return buffers, calls


def _digits_of(dim: str, extent: int, inner: int | None) -> list[tuple[str, int]]:
    """Loops of a dim: itself, or its two digits, the faster of ``inner``."""
    return [(dim, extent)] if inner is None else [(f"{dim}.1", extent // inner), (f"{dim}.0", inner)]


def _apart(program: FunctionProgram, buffer: int, dim: str, step: int) -> FunctionProgram:
    """``program`` with steps of ``dim`` in a buffer of ``step`` elements; nothing is checked to be inside."""

    def changed(function: TaskFunction) -> TaskFunction:
        array = next((n for n, s in enumerate(function.spaces) if program.spaces[s].buffer == buffer), None)

        def change(part: Expr) -> Expr | None:
            if not isinstance(part, Fetch) or part.access.array != array:
                return None
            address = part.access.address
            terms = tuple((name, step if name == dim else factor) for name, factor in address.terms)
            return replace(part, access=replace(part.access, address=replace(address, terms=terms)))

        nest = function.nest
        sums = tuple(replace(a, value=rewrite(a.value, change)) for a in nest.accumulates)
        return replace(function, nest=replace(nest, accumulates=sums))

    leaves = (replace(leaf, functions=tuple(map(changed, leaf.functions))) for leaf in program.leaves)
    return replace(program, leaves=tuple(leaves))


def _version(points: object, way: str) -> int:
    """Number that changes with whatever else than the CPU the rates of a way depend on."""
    target = host_target()
    assert target.products is not None
    library = target.products.library
    named = library.version if library is not None and library.name == way else ""
    caches = (cache_bytes(), last_cache_bytes(), near_cache_ways())
    text = f"{points} {caches} {target.products.sizes} {target.products.pairs} {code_digest(_CODE)} {named}"
    return VERSION << 32 | zlib.crc32(text.encode())
