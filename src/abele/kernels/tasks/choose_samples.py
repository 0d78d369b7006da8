"""Choose the dim along which a program runs block after block of samples, if any, and the samples per block."""

from __future__ import annotations

import math
from dataclasses import replace

from abele.kernels.schedule.choose_schedule import LINE_COST
from abele.kernels.schedule.squares import square_cost
from abele.kernels.schedule.traffic import MEMORY_COST, SHARED_COST
from abele.kernels.tasks.copy_operands import is_product
from abele.kernels.tasks.group_rows import group_rows
from abele.kernels.tasks.order_stages import order_stages, reduces_by_blocks
from abele.kernels.tasks.program import Ref, SampleDim, Task, TaskProgram
from abele.kernels.tasks.sample_dim import find_sample_dim
from abele.llvm.host import LINE_BYTES

MIN_SAMPLES = 4
"""Fewer do not fill the narrowest vector, which has four lanes of f32."""
MIN_BLOCKS = 2
"""Blocks wanted, if the batch allows it, so that two threads share the work."""
MIN_RESULTS = 1024
"""Results of a contraction that give threads enough to share without a sample dim."""
MIN_REUSE = 16
"""Uses of each operand element from which a contraction is bound by arithmetic, not by memory."""
MIN_PRODUCT_REUSE = 2
"""The same of a product by itself, whose register tiles read an operand once for all rows of the other."""

SMALL_PART = 32
"""Ratio of the largest task's points above which the schedule of a smaller one does not matter."""
BARRIER_CYCLES = 2000
"""Cycles of two threads that meet, about half a microsecond."""


def choose_samples(program: TaskProgram) -> TaskProgram:
    """Choose the dim along which tasks run block after block of samples, if that pays.

    It pays where values go from task to task: a block of them stays in cache on the way. It does not where the program
    is one contraction, which has a better order of its own, or where nothing that one task makes is read by another.
    """
    found = None if _is_one_contraction(program) else find_sample_dim(program)
    if found is None or found.extent < MIN_SAMPLES:
        return program
    if _are_products_of_samples(program, found) or _keeps_nothing_near(program, found):
        return program
    in_rows = _in_rows(program)
    if in_rows is not None:
        return in_rows
    block = samples_per_block(found.extent, program.target.lanes)
    if _starves_products(program, found, block):
        return program
    return replace(program, samples=found, block=block)


def samples_per_block(samples: int, lanes: int) -> int:
    """Samples in a block: as many as a vector has lanes, fewer where there would be no second block."""
    while lanes > MIN_SAMPLES and samples < MIN_BLOCKS * lanes:
        lanes //= 2
    return lanes


def _is_one_contraction(program: TaskProgram) -> bool:
    """True if all there is to do is one task with much to reuse, and enough results for threads to share.

    That its operands are widened before it changes nothing.
    """
    tasks = [task for task in program.tasks if not _widens(program, task)]
    if len(tasks) != 1:
        return False
    (task,) = tasks
    # Long sums of products with few results are split for threads by themselves.
    is_product_of_loads = len(task.reductions) == 1 and is_product(task.reductions[0])
    return _is_reused(program, task, MIN_PRODUCT_REUSE) if is_product_of_loads else _reuses_much(program, task)


def _widens(program: TaskProgram, task: Task) -> bool:
    """True if all that a task does is to store elements of an array in another type."""
    if task.reductions or task.locals or len(task.puts) != 1:
        return False
    (put,) = task.puts
    return isinstance(put.value, Ref) and program.spaces[put.value.space].type != program.spaces[put.space].type


def _are_products_of_samples(program: TaskProgram, sample: SampleDim) -> bool:
    """True if all tasks multiply operands of one sample each: across samples, no read could be used twice."""
    return all(
        _reuses_much(program, task) and all(r.space in sample.spaces for r in task.refs) for task in program.tasks
    )


def _in_rows(program: TaskProgram) -> TaskProgram | None:
    """``program`` in stages, if all that passes over large arrays runs together in them for a few rows at a time.

    It does so without samples; the passes that order stages and group rows then have nothing left to do.

    Rows have several dims (samples and tokens), and those at hand lie beside each other in memory; blocks of samples
    have one dim, and of two equal ones the longer, so that rows of a block may lie far apart.
    """
    if any(is_product(r) and _reuses_much(program, task) for task in program.tasks for r in task.reductions):
        return None
    grouped = group_rows(order_stages(program))
    stages = grouped.stages
    rest = (program.tasks[n] for stage in stages if stage.rows is None for n in stage.tasks)
    largest = max(task.points for task in program.tasks)
    in_rows = any(stage.rows is not None for stage in stages) and all(t.points * SMALL_PART < largest for t in rest)
    return grouped if in_rows else None


def _keeps_nothing_near(program: TaskProgram, sample: SampleDim) -> bool:
    """True if no task reads another's results, and sums are of products, within samples: each is faster by itself."""
    tasks = program.tasks
    products = all(is_product(r) for task in tasks for r in task.reductions)
    within = all(dim in dict(tasks[n].parallel) for n, dim in sample.tasks.items())
    made = {space for task in tasks for space in task.writes}
    return products and within and not any(ref.space in made for task in tasks for ref in task.refs)


def _starves_products(program: TaskProgram, sample: SampleDim, block: int) -> bool:
    """True if products lose more by running for a block of samples than all tasks in a row gain.

    Samples are the lanes of a block, so a batch of six is four lanes of sixteen, and two of eight in the second block:
    products take five times as long as with another dim in the lanes, and of a batch of sixteen, in two blocks of
    eight, twice as long. Of sums over the samples each block folds a vector per result, after as many multiply-adds
    as a sample has: one, of a layer's weights. What is gained is a barrier for each task, and values that would come
    from beyond the second-level cache.
    """
    lanes = program.target.lanes
    blocks = -(-sample.extent // block)
    filled = sample.extent / (blocks * lanes)
    by_blocks = replace(program, samples=sample, block=block)
    lost = 0.0
    for number, dim in sample.tasks.items():
        task = program.tasks[number]
        if len(task.reductions) != 1 or not is_product(task.reductions[0]):
            continue
        other = min(lanes, max((n for d, n in task.parallel if d != dim), default=1)) / lanes
        if other > filled:
            lost += task.points * (1 / filled - 1 / other) / lanes
        if reduces_by_blocks(by_blocks, number):
            lost += math.prod(n for _, n in task.parallel) * blocks * square_cost(lanes)
    return lost > BARRIER_CYCLES * len(program.tasks) + _lines_kept_near(program, sample)


def _lines_kept_near(program: TaskProgram, sample: SampleDim) -> float:
    """Cost, in vector operations, of what tasks pass on beyond the second-level cache if each runs whole."""
    target, total = program.target, 0.0
    for number in sample.tasks:
        task = program.tasks[number]
        for space in (task.reads | task.writes) & sample.spaces.keys():
            size = program.spaces[space].bytes
            if size > target.own_bytes and not program.spaces[space].pinned:
                weight = MEMORY_COST if size > target.far_bytes else SHARED_COST
                total += LINE_COST * weight * size / LINE_BYTES
    return total


def _reuses_much(program: TaskProgram, task: Task) -> bool:
    return math.prod(n for _, n in task.parallel) >= MIN_RESULTS and _is_reused(program, task, MIN_REUSE)


def _is_reused(program: TaskProgram, task: Task, uses: int) -> bool:
    """True if ``task`` reduces, and every element that it reads is used so often."""
    reads = task.reads if task.reduced else ()
    return bool(reads) and task.points >= uses * max(program.spaces[s].size for s in reads)
