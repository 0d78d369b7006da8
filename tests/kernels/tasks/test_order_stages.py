"""Stages by blocks of samples: what runs in them, and what is too large to stay near from one task to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels_kit import form_after
from small_programs import Calls

from abele.kernels.nest.ir import load, select
from abele.kernels.target import HostTarget
from abele.kernels.tasks.order_stages import order_stages
from abele.kernels.tasks.sample_dim import find_sample_dim


def two_layers(width: int) -> Calls:
    """A layer and an activation over 32 samples of ``width`` values."""
    made = Calls()
    x, y, z = made.buffer((32, width), "x", True), made.buffer((32, width), "y"), made.buffer((32, 8), "z", True)
    w = made.buffer((8,), "w", True)
    rows = {"b": 32, "n": width}
    made.call("relu", [x], y, rows, ("b", "n"), select(load(0, "b", "n") > 0.0, load(0, "b", "n"), 0.0))
    value = load(0, "b", "n") * load(1, "m")
    made.call("sums", [y, w], z, {"b": 32, "m": 8, "n": width}, ("b", "m"), value, "add")
    return made


@pytest.mark.parametrize(("width", "by_blocks"), [(1 << 12, True), (1 << 14, False)])
def test_tasks__values_of_a_block_of_samples__run_by_blocks_where_they_fit_a_cache(width: int, by_blocks: bool) -> None:
    made = two_layers(width)
    program = form_after("fuse_outer_loops", made.buffers, made.calls, HostTarget(16))
    in_blocks = replace(program, samples=find_sample_dim(program), block=16)
    assert [stage.by_blocks for stage in order_stages(in_blocks).stages] == [by_blocks]
