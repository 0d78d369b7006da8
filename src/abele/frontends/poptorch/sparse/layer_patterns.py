"""Patterns and plans of sparse layers: drawn at random, planned for a machine, and as plain data for files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from abele.counts import check_counts
from abele.errors import InvalidOptionError, SparsePatternError
from abele.frontends.poptorch.values.checks import check_numbers
from abele.network.ops.sparse_slots import GRAIN, SlotPlan
from abele.sparsity import Pattern, grid_of, random_pattern

BLOCKS = (1, 4, 8, 16)
"""Edges of blocks. Source: popsparse's vertices."""


def drawn_pattern(shape: tuple[int, int], density: float | None, block: int) -> Pattern:
    """A pattern drawn by PyTorch's generator.

    Raises:
        InvalidOptionError: No density, one outside of 0 to 1, or another block.
        SparsePatternError: A shape that is no multiple of the block.
    """
    if density is None:
        raise InvalidOptionError("a sparse layer takes a density or a pattern", remedy="density=0.1")
    check_counts(block=block)
    if block not in BLOCKS:
        raise InvalidOptionError(f"blocks are of 1, 4, 8 or 16, got {block}")
    check_numbers(density=density)
    if not 0 < density <= 1:
        raise InvalidOptionError(f"the density of a layer is above 0 and at most 1, got {density}")
    seed = int(torch.randint(2**31, ()).item())
    return random_pattern(shape, density, (block, block), seed=seed)


def planned_slots(pattern: Pattern, rows: int | None, dtype: torch.dtype, system: str | None) -> SlotPlan:
    """The slots of a layer whose pattern may change.

    Raises:
        InvalidOptionError: No rows.
    """
    if rows is None:
        raise InvalidOptionError(
            "a layer with a dynamic pattern is planned for a number of rows of activations",
            remedy="rows=32 for micro-batches of 32, or rows=32 * 128 for sequences of 128",
        )
    check_counts(rows=rows)
    machine = system or os.environ.get("ABELE_SYSTEM", "bow-2000")
    return SlotPlan(pattern.shape, pattern.block, pattern.num_blocks, rows + -rows % GRAIN, kind_of(dtype), machine)


def kind_of(dtype: torch.dtype) -> str:
    """Type that values of a PyTorch type are planned for."""
    return "f16" if dtype == torch.float16 else "f32"


def pattern_state(pattern: Pattern) -> dict[str, Any]:
    """A pattern as plain tensors."""
    return {
        "shape": list(pattern.shape),
        "block": list(pattern.block),
        "row_starts": torch.from_numpy(pattern.row_starts.copy()),
        "columns": torch.from_numpy(pattern.columns.copy()),
    }


def read_pattern(state: Any) -> Pattern:
    """The pattern of a state.

    Raises:
        SparsePatternError: It is none.
    """
    try:
        shape, block = tuple(map(int, state["shape"])), tuple(map(int, state["block"]))
        starts, columns = (np.asarray(state[name]) for name in ("row_starts", "columns"))
        grid_of(shape, block)
        return Pattern((shape[0], shape[1]), (block[0], block[1]), starts, columns)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, SparsePatternError):
            raise
        raise SparsePatternError("the state of a sparse layer has no pattern", because=str(error)) from error


def plan_state(plan: SlotPlan | None) -> dict[str, Any] | None:
    """A plan as plain data."""
    return None if plan is None else asdict(plan)


def read_plan(state: Mapping[str, Any] | None) -> SlotPlan | None:
    """The plan of a state; None for that of a static layer.

    Raises:
        SparsePatternError: It is none.
    """
    if state is None:
        return None
    try:
        return SlotPlan(**{**state, "shape": tuple(state["shape"]), "block": tuple(state["block"])})
    except (KeyError, TypeError, ValueError) as error:
        raise SparsePatternError("the state of a sparse layer has no plan of its slots", because=str(error)) from error


def held_values(given: torch.Tensor, pattern: Pattern, plan: SlotPlan | None) -> torch.Tensor:
    """Values of a file in the pattern's order [blocks, *block].

    Args:
        given: Values as the file has them.
        pattern: The file's pattern.
        plan: The file's plan of slots, or None if it is of a static layer.

    Raises:
        SparsePatternError: Values of another size; a plan of another shape or block.
    """
    shape: tuple[int, ...] = (pattern.num_blocks, *pattern.block)
    if plan is not None:
        plan.check(pattern)
        shape = plan.values_shape
    if given.shape != shape:
        raise SparsePatternError(
            f"the values of {pattern} are {list(shape)}, the state of the layer has {list(given.shape)}"
        )
    return given if plan is None else given.reshape(-1)[torch.from_numpy(plan.slots(pattern))]
