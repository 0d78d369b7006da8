"""Rows that change places: tokens to the slots of experts and back, by numbers that are known when the model runs.

A slot holds one token at most and a token is in few slots, so both directions are look-ups, and so are their gradients:
no row is added to another but the few of one token. Numbers that are none of a row give zeros, forward for empty slots,
backward for tokens that found no slot.
"""

from __future__ import annotations

from typing import Any

import torch

from abele.frontends.poptorch.program.recording import isRunningOnIpu


@torch.library.custom_op("abele::rows_of", mutates_args=())
def _recorded_rows(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return table.new_zeros((numbers.shape[0], table.shape[1]))


@_recorded_rows.register_fake
def _(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return table.new_empty((numbers.shape[0], table.shape[1]))


def rows_of(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Rows of ``table`` [rows, width] by ``numbers`` [n], zeros by numbers past them: [n, width]. No gradient."""
    if isRunningOnIpu():
        looked_up: torch.Tensor = torch.ops.abele.rows_of(table, numbers)
        return looked_up
    inside = numbers < table.shape[0]
    found = table.index_select(0, torch.where(inside, numbers, 0))
    return torch.where(inside.unsqueeze(1), found, 0)


@torch.library.custom_op("abele::inverse_numbers", mutates_args=())
def _recorded_inverse(numbers: torch.Tensor, total: int) -> torch.Tensor:
    return numbers.new_zeros((total,))


@_recorded_inverse.register_fake
def _(numbers: torch.Tensor, total: int) -> torch.Tensor:
    return numbers.new_empty((total,))


def inverse_numbers(numbers: torch.Tensor, total: int) -> torch.Tensor:
    """For each number below ``total`` the place in ``numbers`` [n] that has it, n where none has: [total].

    No number may be in two places, but for those that are ``total`` or larger.
    """
    if isRunningOnIpu():
        found: torch.Tensor = torch.ops.abele.inverse_numbers(numbers, total)
        return found
    count = numbers.shape[0]
    # All that have no place are written to one more, which nobody reads.
    places = torch.full((total + 1,), count).index_copy(0, numbers.clamp(max=total), torch.arange(count))
    return places[:total]


def indicators(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """1 at each of ``numbers`` [...] below ``count``, 0 beside it: int64[..., count]."""
    return (numbers.unsqueeze(-1) == torch.arange(count)).long()


class _Moved(torch.autograd.Function):
    """Rows by number; the gradient of a row is the sum of the gradients that its own numbers find."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, numbers: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(back)
        return rows_of(rows, numbers)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return sum_of_rows(grad, back), None, None


def sum_of_rows(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Sums of the rows of ``table`` [rows, width] by each line of ``numbers`` [n, k]: [n, width]."""
    if numbers.shape[1] == 1:
        return rows_of(table, numbers[:, 0])
    return rows_of(table, numbers.reshape(-1)).reshape(*numbers.shape, table.shape[1]).sum(1)


def move_rows(rows: torch.Tensor, numbers: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """``rows`` [n, width] by ``numbers`` [m], with a gradient.

    Args:
        rows: Rows to move.
        numbers: For each result the row that it shows; n or more for zeros.
        back: For each row the results that show it, [n, k]; m or more for none.
    """
    moved: torch.Tensor = _Moved.apply(rows, numbers, back)  # type: ignore[no-untyped-call]
    return moved
