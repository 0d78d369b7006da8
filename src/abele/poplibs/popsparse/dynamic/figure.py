"""Figures of one product: cycles as planned, and as compiled for a uniform random pattern.

Exchange, copies, loops and sums are the compiled program's; products are the pattern's, and so is how often its loop
runs. A published figure is of the one operation, with operands where its create functions put them.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.compiler import compile_program
from abele.errors import OutOfMemoryError
from abele.graph import Graph
from abele.graph.program import Sequence
from abele.machine.ipu import Ipu
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.matmul import (
    create_sparse_dense_matmul_lhs,
    create_sparse_dense_matmul_rhs,
    sparse_dense_matmul,
)
from abele.poplibs.popsparse.dynamic.params import DynamicMatMulParams, SparsityParams
from abele.poplibs.popsparse.dynamic.partitioner import BucketPlacement, DynamicPartitioner
from abele.poplibs.popsparse.dynamic.pattern_cost import PatternCost, pattern_cost
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.work import full_work, pass_cycles
from abele.poplibs.popsparse.target import Target, system_of
from abele.poplibs.poputil.options import Options
from abele.sparsity import random_pattern


@dataclass(frozen=True)
class SparseFigure:
    """Cycles of one product.

    Attributes:
        plan: The plan.
        planned: Estimate of the planner.
        compiled: Cycles of the compiled program for the pattern.
        worst: Cycles of the same program for the worst pattern that the plan allows.
        cost: Cost of the pattern's products.
        parts: Cycles by step, for the pattern.
    """

    plan: DynamicPlan
    planned: int
    compiled: int
    worst: int
    cost: PatternCost
    parts: tuple[tuple[str, int], ...]

    def flops_per_second(self, clock_hz: float) -> float:
        """Operations on held values per second."""
        layer = self.plan.layer
        return 2 * layer.numNonZeroValues * layer.batchSize * clock_hz / self.compiled


def sparse_figure(
    m: int,
    k: int,
    n: int,
    density: float,
    block: int | tuple[int, int] = 1,
    dtype: ElementType | str = "half",
    *,
    target: Target = "bow",
    options: Options = None,
    seed: int = 0,
) -> SparseFigure:
    """Cycles of a product [m, k] · [k, n] with a uniform random pattern, compiled for one IPU of ``target``.

    Raises:
        OutOfMemoryError: The program does not fit the tiles.
        SparseOverflowError: Buckets do not hold the pattern.
    """
    sides = (block, block) if isinstance(block, int) else block
    params = DynamicMatMulParams.createWithNzRatio(SparsityParams(blockDimensions=sides), density, 1, m, k, n)
    graph, prog, kind = Graph(system_of(target)), Sequence(), as_element_type(dtype)
    partitioner = DynamicPartitioner(params, kind, target, options)
    _check_room(partitioner.plan, graph.system.ipu)
    sparse = create_sparse_dense_matmul_lhs(graph, kind, params, options=options)
    dense = create_sparse_dense_matmul_rhs(graph, kind, params, options=options)
    sparse_dense_matmul(graph, sparse, dense, prog, options=options, name="product")
    placement = partitioner.place(random_pattern((m, k), density, sides, seed=seed))
    report = compile_program(graph, prog).report
    steps = report.steps
    names, each = [str(n) for n in steps["name"]], [int(c) for c in steps["cycles"]]
    plan = partitioner.plan
    cost = pattern_cost(placement)
    parts = _pattern_cycles(plan, placement, cost, names, each)
    worst = _worst_cycles(plan, names, each)
    total = sum(cycles for _, cycles in parts)
    return SparseFigure(plan, plan.pass_cycles("fwd"), total, worst, cost, tuple(parts))


def _check_room(plan: DynamicPlan, ipu: Ipu) -> None:
    """Raise where temporaries or operands alone are more than a chip has, before anything is built.

    Raises:
        OutOfMemoryError: They are.
    """
    (m, k), n, tile = plan.layer.shape, plan.layer.batchSize, ipu.tile.usable_bytes
    operands = (m * plan.result.bytes + k * plan.dtype.bytes) * n // ipu.num_tiles
    for what, size in (("temporaries", plan.temporary_bytes), ("dense operands", operands)):
        if size > tile:
            raise OutOfMemoryError(
                f"{what} of a dynamic sparse product take {size:,} B per tile, there are {tile:,} B",
                because=f"{m:,} x {k:,} by {n:,} columns of {plan.dtype}",
                remedy="fewer dense columns at a time",
            )


def _pattern_cycles(
    plan: DynamicPlan, placement: BucketPlacement, cost: PatternCost, names: list[str], each: list[int]
) -> list[tuple[str, int]]:
    """Cycles of each step for a pattern."""
    trips, pz = len(cost.passes), plan.parts[2]
    works = int((cost.passes > 0).sum())
    full_first, full_spilt = (pass_cycles(plan, "fwd", full_work(plan, buckets)) for buckets in (pz, 1))
    found = []
    in_loop, spilt = False, -(-full_spilt // costs.WORKERS) * costs.WORKERS
    for name, cycles in zip(names, each, strict=True):
        last = name.rsplit("/", 1)[-1]
        in_loop = in_loop or last == "repeat_while"
        if last == "products":
            found.append((name, cycles - full_first + cost.first))
        elif "/take/" in name:
            found.append((name, cycles * (trips > 0)))
        elif last == "repeat_while":
            found.append((name, cycles * (trips + 1) * (trips > 0)))
        elif "/shift_x/" in name:
            found.append((name, cycles * cost.turns))
        elif "/step/" in name:
            times = works * _steps(name, pz, names)
            own = int((cycles - spilt) * times + cost.passes.sum() * times // max(works, 1)) if "spilt" in name else 0
            found.append((name, own or cycles * times))
        elif "reduce" in name or not in_loop:
            found.append((name, cycles))
        else:
            found.append((name, cycles * trips))
    del placement
    return found


def _steps(name: str, pz: int, names: list[str]) -> int:
    """Times that a step of a round along z runs in one pass: unrolled by two, and once more where pz is odd."""
    same = sum(other == name for other in names)
    unrolled = same - pz % 2
    return pz // 2 if unrolled > 0 else 1


def _worst_cycles(plan: DynamicPlan, names: list[str], each: list[int]) -> int:
    """Cycles of the worst pattern: every pass, with full buckets."""
    passes, turns, pz = plan.num_cells - 1, plan.parts[0] - 1, plan.parts[2]
    total, in_loop = 0, False
    for name, cycles in zip(names, each, strict=True):
        last = name.rsplit("/", 1)[-1]
        in_loop = in_loop or last == "repeat_while"
        if "reduce" in name or not in_loop:
            times = 1
        elif "/shift_x/" in name:
            times = turns
        elif "/step/" in name:
            times = passes * _steps(name, pz, names)
        else:
            times = passes
        total += cycles * times
    return total
