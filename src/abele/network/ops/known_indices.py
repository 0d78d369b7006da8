"""Indices that are known while a network is built, as views: runs of even steps, which are put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abele.network.ir import BlockBuilder, Value
from abele.network.ops.views import concat, expand, reverse, slice_

EvenRun = tuple[int, int, int]
"""The first number, the step to the next, and how many there are."""


def even_runs(numbers: Sequence[int], *, far_pairs: bool = True) -> Iterator[EvenRun]:
    """``numbers`` as runs that count up, down or not at all, each as long as it can be.

    Args:
        numbers: In order.
        far_pairs: False to let two numbers that are more than one apart be no run, so that the second may begin one.
    """
    begin = 0
    while begin < len(numbers):
        end = begin + 1
        step = numbers[end] - numbers[begin] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if not far_pairs and end == begin + 2 and abs(step) > 1:
            end = begin + 1
        yield numbers[begin], step, end - begin
        begin = end


def taken_runs(net: BlockBuilder, value: Value, dim: int, runs: Sequence[EvenRun]) -> Value:
    """The indices of ``runs`` of one dimension, one after the other."""
    return concat(net, [_run(net, value, dim, *run) for run in runs], dim)


def _run(net: BlockBuilder, value: Value, dim: int, first: int, step: int, count: int) -> Value:
    if step == 0 or count == 1:
        one = slice_(net, value, dim, first, first + 1)
        return expand(net, one, (*value.shape[:dim], count, *value.shape[dim + 1 :]))
    low = min(first, first + step * (count - 1))
    run = slice_(net, value, dim, low, low + abs(step) * (count - 1) + 1, abs(step))
    return run if step > 0 else reverse(net, run, [dim])
