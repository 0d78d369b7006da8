"""Shapes of tasks that a library would run as one product or convolution, as text.

A task is a product if it sums ``a · b``: dims that both loads and the result have are the batch, those of one load rows
or columns, and those that are summed in both the third extent. Where a load has an index of an output's dim and a
summed one, it is a window: the task is a convolution, or the gradient of one's weights.

Examples: ``128x1500x1500 f32`` (rows, columns, summed), ``48 of 64x64x128 bf16``, ``conv 32x64x58x58 by 64x64x3x3 / 1
f32`` (batch, channels, rows, columns; filters, channels, rows, columns; stride), ``conv weights …`` likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from abele.kernels.nest.ir import Affine, Expr
from abele.kernels.tasks.program import Ref, Space, Task
from abele.layout import row_major
from abele.numerics import bf16, f16, f32


def library_shape(task: Task, spaces: Sequence[Space]) -> str:
    """The product or convolution that a task is; empty if it is none."""
    found = _factors(task)
    if found is None:
        return ""
    left, right = found
    sides = [_dims(side) for side in found]
    parallel, reduced = ({d: n for d, n in dims if n > 1} for dims in (task.parallel, task.reduced))
    narrow = {spaces[ref.space].type for side in found for ref in side}
    kind = (narrow.pop() if len(narrow) == 1 and narrow <= {bf16, f16} else f32).name
    windows = [[p for ref in side for p in ref.index if _is_window(p, parallel, reduced)] for side in (left, right)]
    for one, other, seen in ((0, 1, windows[0]), (1, 0, windows[1])):
        if seen and not windows[other]:
            return _convolution(seen, (sides[one], sides[other]), (parallel, reduced), kind)
    if windows[0] or windows[1] or any(d not in side for d in reduced for side in sides):
        return ""
    batch, rows, columns = (
        math.prod(n for d, n in parallel.items() if (d in sides[0], d in sides[1]) == where)
        for where in ((True, True), (True, False), (False, True))
    )
    if rows == 1 and columns == 1:
        return ""
    # Columns are the dim along which results lie closest.
    strides = _result_strides(task, spaces)
    nearest = [
        min((strides.get(d, math.inf) for d in parallel if d in own and d not in other), default=math.inf)
        for own, other in (sides, sides[::-1])
    ]
    if nearest[0] < nearest[1]:
        rows, columns = columns, rows
    several = f"{batch} of " if batch > 1 else ""
    return f"{several}{rows}x{columns}x{math.prod(reduced.values())} {kind}"


def _result_strides(task: Task, spaces: Sequence[Space]) -> dict[str, int]:
    """Distance of neighbours along each dim in the first result."""
    found: dict[str, int] = {}
    for put in task.puts[:1]:
        for position, step in zip(put.index, row_major(spaces[put.space].shape), strict=False):
            for dim, factor in position.terms:
                found[dim] = found.get(dim, 0) + abs(factor) * step
    return found


def _factors(task: Task) -> tuple[list[Ref], list[Ref]] | None:
    """Loads of both factors of the one sum of products that a task makes."""
    if len(task.reductions) != 1 or not any(n > 1 for _, n in task.reduced):
        return None
    (reduction,) = task.reductions
    if not reduction.is_multiply_add:
        return None
    left, right = (_loads(side) for side in reduction.value.args)
    return (left, right) if left and right else None


def _loads(value: Expr) -> list[Ref]:
    return [part for part in value.walk() if isinstance(part, Ref)]


def _dims(refs: Iterable[Ref]) -> set[str]:
    return {dim for ref in refs for position in ref.index for dim, _ in position.terms}


def _is_window(position: Affine, parallel: dict[str, int], reduced: dict[str, int]) -> bool:
    dims = [dim for dim, _ in position.terms]
    return any(d in parallel for d in dims) and any(d in reduced for d in dims)


def _convolution(
    windows: Sequence[Affine],
    sides: tuple[set[str], set[str]],
    dims: tuple[dict[str, int], dict[str, int]],
    kind: str,
) -> str:
    """Text of a convolution whose image is ``sides[0]``."""
    image, filters = sides
    parallel, reduced = dims
    seen = {dim for position in windows for dim, _ in position.terms}
    if any(d not in filters for d in reduced) or any(d in image and d in filters for d in parallel):
        return ""
    outs, kernels, steps = [], [], []
    for position in windows:
        moved = [(abs(factor), parallel[d]) for d, factor in position.terms if d in parallel]
        summed = [(abs(factor), reduced[d]) for d, factor in position.terms if d in reduced]
        outs.append(math.prod(n for _, n in moved))
        kernels.append(math.prod(n for _, n in summed))
        steps.append((min(step for step, _ in moved), min(step for step, _ in summed)))
    batch = math.prod(n for d, n in parallel.items() if d in image and d not in seen)
    channels = math.prod(n for d, n in reduced.items() if d not in seen)
    made = math.prod(n for d, n in parallel.items() if d in filters)
    word = "conv"
    if math.prod(kernels) > math.prod(outs):
        # The sum runs over a whole output: results are filters, and the dims of the sum are its batch and places.
        word, outs, kernels = "conv weights", kernels, outs
        steps = [(step, every) for every, step in steps]
        batch, channels = channels, batch
    sizes = [(o - 1) * s + (k - 1) * e + 1 for o, k, (s, e) in zip(outs, kernels, steps, strict=True)]
    if len({s for s, _ in steps}) != 1 or any(e != 1 for _, e in steps) or len(sizes) > _MOST_DIMS:
        return ""
    shapes = ("x".join(map(str, shape)) for shape in ((batch, channels, *sizes), (made, channels, *kernels)))
    return f"{word} {' by '.join(shapes)} / {steps[0][0]} {kind}"


_MOST_DIMS = 3
"""Dims of an image that libraries take."""
