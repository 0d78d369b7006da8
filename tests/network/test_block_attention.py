"""Attention in blocks: what its ops mean, their gradients, their text, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import NetworkError
from abele.expr.derivative import arg
from abele.network import Network, NetworkBuilder, differentiate, evaluate, parse, verify
from abele.network.ops import build
from abele.network.ops.block_attention import CAUSAL, NO_MASK
from abele.numerics import f32
from abele.session import Session, Settings
from abele.sparsity import Pattern, bigbird_pattern, causal_pattern, random_pattern, stack_patterns
from support.examples import examples

Array = np.ndarray[Any, Any]


def network(pattern: Pattern, heads: int, batch: int, mask: str, dtype: str = "f32", width: int = 8) -> Network:
    """An attention of parameters, times what enters, summed."""
    net = NetworkBuilder()
    groups, rows = batch * heads, pattern.shape[0] // (heads if pattern.shape[0] > pattern.shape[1] else 1)
    q = net.parameter((groups, rows, width), dtype, "q")
    k, v = (net.parameter((groups, pattern.shape[1], width), dtype, name) for name in "kv")
    out = build.block_attention(net, q, k, v, pattern, mask=mask)
    net.output(out)
    factor = net.input(out.shape, dtype, "factor")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [out, factor], f32), [0, 1, 2])
    return net.finish()


def by_torch(net: Network, pattern: Pattern, mask: str, arrays: dict[str, Array]) -> list[Array]:
    """The result and the gradients of a dense attention with the mask expanded, in 64 bits."""
    q, k, v = (torch.tensor(arrays[n], dtype=torch.float64, requires_grad=True) for n in "qkv")
    rows = q.shape[1]
    kept = pattern.to_dense(np.ones((pattern.num_blocks, *pattern.block))).reshape((-1, rows, pattern.shape[1])) > 0
    kept = kept & (np.tri(rows, pattern.shape[1], dtype=bool) if mask == CAUSAL else True)
    shown = torch.tensor(np.tile(kept, (q.shape[0] // len(kept), 1, 1)))
    scores = (q @ k.transpose(1, 2) / q.shape[2] ** 0.5).masked_fill(~shown, -torch.inf)
    shares = torch.where(shown.any(-1, keepdim=True), torch.softmax(scores, -1).nan_to_num(), 0.0)
    out = shares @ v
    loss = (out * torch.tensor(arrays["factor"], dtype=torch.float64)).sum()
    return [out.detach().numpy(), *(t.numpy() for t in torch.autograd.grad(loss, (q, k, v)))]


def drawn(net: Network, seed: int) -> dict[str, Array]:
    """Numbers for all that enters."""
    rng = np.random.default_rng(seed)
    return {v.name: rng.standard_normal(v.shape).astype(v.dtype.np) for v in (*net.parameters, *net.inputs)}


def with_gradients(net: Network) -> Network:
    """The network whose outputs are followed by the gradients of its parameters."""
    made = differentiate(net, net.parameters)
    wider = NetworkBuilder.of(made)
    for parameter in net.parameters:
        wider.output(made.gradients[parameter])
    return wider.finish()


@st.composite
def attentions(draw: Any) -> tuple[Pattern, int, int, str]:
    """Patterns that heads share or have each, with empty rows among them."""
    heads, grid = draw(st.sampled_from((1, 2, 3))), draw(st.integers(1, 4))
    block = draw(st.sampled_from(((4, 4), (8, 8), (4, 8))))
    shape = (grid * block[1], grid * block[1])
    seeds = range(draw(st.sampled_from((1, heads))))
    density = draw(st.sampled_from((0.1, 0.5, 1.0)))
    pattern = stack_patterns([random_pattern(shape, density, block, seed=s) for s in seeds])
    return pattern, heads, draw(st.integers(1, 2)), draw(st.sampled_from((NO_MASK, CAUSAL)))


@given(attentions(), st.integers(0, 2**16))
@examples(12)
def test_block_attention__any_pattern__result_and_gradients_are_dense_ones_under_the_mask(
    case: tuple[Pattern, int, int, str], seed: int
) -> None:
    pattern, heads, batch, mask = case
    net = with_gradients(network(pattern, heads, batch, mask))
    verify(net)
    assert parse(str(net)) == net
    arrays = drawn(net, seed)
    got = evaluate(net, {v: arrays[v.name] for v in (*net.parameters, *net.inputs)})
    wanted = by_torch(net, pattern, mask, arrays)
    for value, want in zip(net.outputs, wanted, strict=True):
        np.testing.assert_allclose(got[value], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_block_attention__on_the_device__is_the_dense_one(dtype: str, mode: str) -> None:
    one = bigbird_pattern((64, 64), (16, 16), window=0, num_global=1)
    pattern = causal_pattern(one)
    net = with_gradients(network(pattern, 2, 2, CAUSAL, dtype, 32))
    arrays = drawn(net, 3)
    weights = {name: arrays[name] for name in "qkv"}
    session = Session.of(net, settings=Settings(system="bow", mode=mode), weights=weights)
    tolerance = 2e-5 if dtype == "f32" else 1e-2
    wanted = by_torch(net, pattern, CAUSAL, arrays)
    for got, want in zip(session(arrays["factor"]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 4)


def test_block_attention__operands_that_do_not_fit__are_network_errors() -> None:
    pattern = random_pattern((32, 32), 0.5, (8, 8))
    net = NetworkBuilder()
    q, k = net.input((2, 32, 8), "f32", "q"), net.input((2, 24, 8), "f32", "k")
    with pytest.raises(NetworkError, match="is no stack of 24 queries"):
        build.block_scores(net, k, q, pattern)
    net.output(build.block_scores(net, q, k, pattern))
    with pytest.raises(NetworkError, match=r"is not \[batch x 1, 32, width\]"):
        verify(net.finish())
    net = NetworkBuilder()
    q = net.input((2, 32, 8), "f32", "q")
    net.output(build.block_softmax(net, build.block_scores(net, q, q, pattern), pattern, 1, mask="causal"))
    with pytest.raises(NetworkError, match="a mask is one of None"):
        verify(net.finish())
