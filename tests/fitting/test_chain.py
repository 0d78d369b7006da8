"""Chains: where networks may be cut, and that segments put together are the network."""

from __future__ import annotations

from itertools import pairwise

import pytest
from spread_models import cnn, mlp

from abele.errors import FittingError
from abele.fitting import chain_of
from abele.fitting.segment import segment_network
from abele.network import NetworkBuilder
from abele.network.ops import build


def test_chain__equal_layers__one_segment_each_and_all_but_the_ends_equal():
    model = mlp(4)
    chain = chain_of(model.net, model.groups)
    assert len(chain.segments) == 8
    segments = [segment_network(chain, n, model.groups) for n in range(8)]
    assert len(set(segments)) == 3
    assert len({segments[n] for n in range(1, 7)}) == 1
    assert [s.entering_bytes for s in chain.segments] == [0] + [4 * 256 * 2] * 7


def test_chain__segments__have_all_ops_once_and_in_order():
    model = cnn(2)
    chain = chain_of(model.net, model.groups)
    bounds = [(s.begin, s.end) for s in chain.segments]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == len(model.net.ops)
    assert all(before[1] == after[0] for before, after in pairwise(bounds))


def test_chain__residual_branch__no_cut_inside():
    net = NetworkBuilder()
    x = net.input((4, 16), "f32", "x")
    weights = [net.parameter((16, 16), "f32", f"w{n}") for n in range(4)]
    x = build.linear(net, x, weights[0])
    inner = build.nonlinearity(net, "relu", build.linear(net, x, weights[1]))
    x = build.total(net, [x, build.linear(net, inner, weights[2])])
    net.output(build.linear(net, x, weights[3]))
    chain = chain_of(net.finish())
    kinds = [[op.kind for op in chain.net.ops[s.begin : s.end]] for s in chain.segments]
    assert len(kinds) == 3
    assert kinds[1].count("linear") == 2


def test_chain__places_of_cuts_known__cuts_there_alone():
    model = mlp(4)
    assert len(chain_of(model.net, model.groups, starts=frozenset()).segments) == 1


def test_chain__weights_of_two_layers_shared__both_segments_read_it():
    net = NetworkBuilder()
    x, weight = net.input((4, 16), "f32", "x"), net.parameter((16, 16), "f32", "w")
    other = net.parameter((16, 16), "f32", "v")
    for w in (weight, other, weight):
        x = build.nonlinearity(net, "tanh", build.linear(net, x, w))
    net.output(x)
    chain = chain_of(net.finish())
    assert len(chain.segments) == 3
    # The weight is no activation: it does not cross.
    assert all(len(s.entering) == 1 for s in chain.segments[1:])


def test_chain__no_ops__is_refused():
    with pytest.raises(FittingError, match="no operations"):
        chain_of(NetworkBuilder().finish())
