"""Let every array start where a nest first touches it, so that nests that differ in nothing else share code.

The parts of a split reduction read the same arrays from different offsets. An offset in the nest would be a constant in
its code, and each part would be compiled by itself; added to the pointer instead, all parts call one function.
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.nest.ir import Expr
from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest
from abele.kernels.nest.rewrite import rewrite


def shifted_arrays(nest: LoopNest) -> tuple[LoopNest, dict[int, int]]:
    """``nest`` with every array starting where it is first touched, so that equal parts share code.

    Returns:
        The nest, and by how many bytes arrays start later.
    """
    bounded = {f.access.array for f in nest.fetches if f.bounds}
    bounded |= {f.access.array for f in nest.row_fetches} | {o.access.array for o in nest.outs if o.place is not None}
    starts: dict[int, set[int]] = {}
    types = {}
    for access in (*(f.access for f in nest.fetches), *(o.access for o in nest.outs)):
        starts.setdefault(access.array, set()).add(access.address.const)
        types[access.array] = access.type
    # Arrays with bounded loads stay: where a bound fails, the load goes to an address counted from the array's start.
    # So do those with rows that values name.
    moved = {a: min(s) for a, s in starts.items() if len(s) == 1 and min(s) > 0 and a not in bounded}
    if not moved:
        return nest, {}

    def access_of(access: ElementAccess) -> ElementAccess:
        less = moved.get(access.array, 0)
        return replace(access, address=access.address - less) if less else access

    def change(part: Expr) -> Expr | None:
        return replace(part, access=access_of(part.access)) if isinstance(part, Fetch) else None

    def of_value(value: Expr) -> Expr:
        return rewrite(value, change)

    changed = replace(
        nest,
        accumulates=tuple(replace(a, value=rewrite(a.value, change)) for a in nest.accumulates),
        outs=tuple(replace(o.with_values(of_value), access=access_of(o.access)) for o in nest.outs),
        locals=tuple(rewrite(value, change) for value in nest.locals),
    )
    return changed, {array: start * types[array].bytes for array, start in moved.items()}
