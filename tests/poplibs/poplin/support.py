"""Helpers of this room's tests: machines, bodies run on tiles, and PyTorch as the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import reject
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.graph import Graph, Program, Tensor
from abele.machine import System, systems
from abele.poplibs.poplin.conv_params.params import ConvParams
from support.engines import run_once

Array = npt.NDArray[np.generic]


def system(tiles: int) -> System:
    """A Bow with fewer tiles."""
    return systems.get("bow").evolve(ipu={"num_tiles": tiles})


def run_body(graph: Graph, program: Program, values: Mapping[Tensor, Array], *results: Tensor) -> list[Array]:
    """Run every vertex of a program as placed on the tiles, compiled; the results in float64."""
    engine = run_once(graph, program, values, mode="tiles", threads=1)
    return [np.asarray(engine[t], dtype=np.float64) for t in results]


def reference_conv(params: ConvParams, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """PyTorch's convolution of a dilated, padded (or cut) input with a possibly flipped kernel."""
    rank = len(params.field)
    shape = [(n - 1) * d + 1 for n, d in zip(params.field, params.input_dilation, strict=True)]
    dilated = torch.zeros(*x.shape[:2], *shape, dtype=x.dtype)
    dilated[(..., *(slice(None, None, d) for d in params.input_dilation))] = x
    padding = [p for d in reversed(range(rank)) for p in (params.padding_lower[d], params.padding_upper[d])]
    padded = torch.nn.functional.pad(dilated, padding)
    flipped = weights.flip([2 + d for d in range(rank) if params.flip[d]])
    function = [None, torch.conv1d, torch.conv2d, torch.conv3d][rank]
    assert function is not None
    return function(padded, flipped, stride=params.stride, dilation=params.dilation, groups=params.groups)


@st.composite
def convolutions(draw: st.DrawFn, max_rank: int = 2) -> ConvParams:
    """Small convolutions of every kind: strides, dilations, uneven and negative padding, groups, flips."""
    rank = draw(st.integers(1, max_rank))

    def per_dim(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(rank))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = st.sampled_from([1, 2, 3, 4, 8, 16, 17])
    small = st.integers(1, 3)
    try:
        return ConvParams(
            batch=draw(st.sampled_from([1, 2, 3, 16])),
            in_channels=groups * draw(channels),
            out_channels=groups * draw(channels),
            field=per_dim(st.integers(1, 6)),
            kernel=per_dim(small),
            stride=per_dim(small),
            dilation=per_dim(st.integers(1, 2)),
            padding_lower=per_dim(st.integers(-1, 2)),
            padding_upper=per_dim(st.integers(-1, 2)),
            input_dilation=per_dim(st.integers(1, 2)),
            flip=tuple(draw(st.booleans()) for _ in range(rank)),
            groups=groups,
        )
    except TensorError:
        reject()
