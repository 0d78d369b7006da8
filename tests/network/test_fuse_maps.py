"""Chains of maps become one map, which gives the same."""

from abele.expr import apply
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, verify
from abele.network.ops import build
from abele.network.passes.fuse_maps import FuseMaps
from abele.numerics import bool_

x, y = arg(0), arg(1)


def fused(make):
    """Kinds of op after fusing what ``make`` appends for two inputs."""
    net = NetworkBuilder()
    a, b = net.input((3, 4), "f32", "a"), net.input((3, 4), "f32", "b")
    net.output(make(net, a, b))
    made = FuseMaps().run(net.finish())
    verify(made)
    return [op.kind for op in made.ops]


def test_fuse_maps__chain__is_one_op():
    def chain(net, a, b):
        c = build.map_(net, apply("exp", x), [a])
        d = build.map_(net, x * y, [c, b])
        return build.map_(net, x + y, [d, a])

    assert fused(chain) == ["map"]


def test_fuse_maps__function_that_two_read__is_computed_once():
    def shared(net, a, b):
        c = build.map_(net, apply("exp", x), [a])
        return build.concat(net, [build.map_(net, x * y, [c, b]), build.map_(net, x + y, [c, b])], 0)

    assert fused(shared).count("map") == 3


def test_fuse_maps__cheap_value_that_two_read__is_computed_in_both():
    def shared(net, a, b):
        c = build.map_(net, -x, [a])
        return build.concat(net, [build.map_(net, x * y, [c, b]), build.map_(net, x + y, [c, b])], 0)

    assert fused(shared).count("map") == 2


def test_fuse_maps__smaller_value__is_computed_for_itself():
    def beside(net, a, b):
        row = build.reduce(net, a, [1], keep=True)
        return build.map_(net, x * y, [b, build.map_(net, apply("exp", x), [row])])

    assert fused(beside).count("map") == 2


def test_fuse_maps__condition__stays_a_bool():
    def chosen(net, a, b):
        mask = build.map_(net, x > y, [a, b], bool_)
        return build.map_(net, apply("select", arg(2), x, y), [a, b, mask], a.dtype)

    assert fused(chosen) == ["map"]
