"""PopLibs' full description of convolutions against PyTorch, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.graph import Graph, Sequence
from abele.numerics import f32
from abele.poplibs import poplin
from abele.poplibs.poplin import InputTransform, OutputTransform, TransformedConv
from poplibs.poplin.support import run_body, system
from support.examples import examples


def transformed(x: torch.Tensor, t: InputTransform) -> torch.Tensor:
    """Truncate, dilate, pad, flip."""
    rank = x.ndim - 2
    cut = [slice(t.truncation_lower[d], x.shape[d + 2] - t.truncation_upper[d]) for d in range(rank)]
    x = x[(..., *cut)]
    apart = torch.zeros(*x.shape[:2], *((n - 1) * d + 1 for n, d in zip(x.shape[2:], t.dilation, strict=True)))
    apart = apart.to(x.dtype)
    apart[(..., *(slice(None, None, d) for d in t.dilation))] = x
    pads = [p for d in reversed(range(rank)) for p in (t.padding_lower[d], t.padding_upper[d])]
    return torch.nn.functional.pad(apart, pads).flip([d + 2 for d in range(rank) if t.flip[d]])


def reference(conv: TransformedConv, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rank = len(conv.field)
    function = (torch.conv1d, torch.conv2d)[rank - 1]
    y = function(transformed(x, conv.input), transformed(w, conv.kernel_transform), groups=conv.groups)
    t = conv.output
    keep = [slice(t.truncation_lower[d], y.shape[d + 2] - t.truncation_upper[d], t.stride[d]) for d in range(rank)]
    pads = [p for d in reversed(range(rank)) for p in (t.padding_lower[d], t.padding_upper[d])]
    return torch.nn.functional.pad(y[(..., *keep)], pads)


@st.composite
def convs(draw: st.DrawFn) -> TransformedConv:
    rank = draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    def around() -> InputTransform:
        flip = tuple(draw(st.booleans()) for _ in range(rank))
        return InputTransform(numbers(0, 1), numbers(0, 1), numbers(1, 2), numbers(0, 2), numbers(0, 2), flip)

    out = OutputTransform(numbers(0, 1), numbers(0, 1), numbers(1, 3), numbers(0, 1), numbers(0, 2))
    groups = draw(st.sampled_from([1, 2]))
    ins, outs = (groups * draw(st.sampled_from([1, 3, 8])) for _ in range(2))
    try:
        return TransformedConv(
            draw(st.integers(1, 2)), numbers(2, 6), numbers(2, 4), ins, outs, groups, around(), around(), out
        )
    except TensorError:
        reject()


@examples(5)
@given(convs())
def test_transformed_convolution__any__is_pytorchs_with_gradients(conv: TransformedConv) -> None:
    graph, prog = Graph(system(8)), Sequence()
    x, w, z = (graph.variable(f32, s).map_linear() for s in (conv.input_shape, conv.weights_shape, conv.output_shape))
    y = poplin.convolution(graph, x, w, conv, prog)
    dx = poplin.convolution_backward_data(graph, z, w, conv, prog)
    dw = poplin.calculate_weight_deltas(graph, z, x, conv, prog)
    rng = np.random.default_rng(0)
    given_ = {t: rng.standard_normal(t.shape).astype(np.float32).astype(np.float64) for t in (x, w, z)}
    tx, tw = (torch.tensor(given_[t], requires_grad=True) for t in (x, w))
    wanted = reference(conv, tx, tw)
    assert tuple(wanted.shape) == conv.output_shape
    wanted.backward(torch.tensor(given_[z]))
    assert tx.grad is not None
    assert tw.grad is not None
    found = run_body(graph, prog, given_, y, dx, dw)
    for got, want in zip(found, (wanted.detach(), tx.grad, tw.grad), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-4)


def test_transformed_convolution__truncated_to_nothing__is_refused() -> None:
    with pytest.raises(TensorError, match=r"nothing is left of the input \[3\] truncated by \[2\] and \[1\]"):
        TransformedConv(1, (3,), (1,), 1, 1, input=InputTransform((2,), (1,)))


def test_transformed_convolution__wrong_number_of_entries__is_refused() -> None:
    with pytest.raises(TensorError, match="stride of the output has 1 entries, the field has 2 dimensions"):
        TransformedConv(1, (3, 3), (1, 1), 1, 1, output=OutputTransform(stride=(2,)))


def test_transformed_convolution__stride_of_zero__is_refused() -> None:
    with pytest.raises(TensorError, match=r"stride of the output is \[0\], it must be at least 1 everywhere"):
        TransformedConv(1, (3,), (1,), 1, 1, output=OutputTransform(stride=(0,)))
