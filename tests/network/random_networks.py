"""Random legal networks, for properties."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from abele.expr import Const, Expr, apply, select
from abele.expr.derivative import arg
from abele.graph import DebugRecord
from abele.network import Network, NetworkBuilder, Place, Stage, Value
from abele.network.ir import BlockBuilder, NetworkFunction
from abele.network.ops import build
from abele.numerics import bool_, f16, f32, i32

NAMES = st.one_of(
    st.sampled_from(["", "x", "fc.weight", "a/b", "odd name", 'quo"te', "7", "é", "none", "x"]), st.text(max_size=6)
)
UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "square", "relu")
NUMBERS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, 0.5, float("inf"), float("nan")]))


def expressions(count: int) -> st.SearchStrategy[Expr]:
    """Floating-point expressions over ``count`` operands."""
    leaves = st.one_of(st.integers(0, count - 1).map(arg), NUMBERS.map(Const))
    return st.recursive(
        leaves,
        lambda e: st.one_of(
            st.tuples(st.sampled_from(UNARY), e).map(lambda t: apply(*t)),
            st.tuples(st.sampled_from(("add", "sub", "mul", "div", "max", "min")), e, e).map(lambda t: apply(*t)),
            st.tuples(e, e, e).map(lambda t: select(t[0] > t[1], t[1], t[2])),
        ),
        max_leaves=5,
    )


class Draw:
    """Appends random ops on floats to a block."""

    def __init__(self, data: Any, net: BlockBuilder, values: list[Value]) -> None:
        self.data, self.net, self.values = data, net, list(values)

    def pick(self) -> Value:
        return self.data.draw(st.sampled_from(self.values))

    def some(self, most: int, depth: int) -> None:
        for _ in range(self.data.draw(st.integers(0, most))):
            debug = DebugRecord("op", self.data.draw(st.sampled_from(["", "layers/0"])), "model.py", 3)
            with self.net.at(self.data.draw(st.sampled_from([DebugRecord(""), debug]))):
                self.op(depth)

    def op(self, depth: int) -> None:
        kinds = [
            "map",
            "reshape",
            "permute",
            "reduce",
            "slice",
            "concat",
            "constant",
            "nonlinearity",
            "linear",
            "softmax",
        ]
        kind = self.data.draw(st.sampled_from(kinds + (["loop", "while", "cond", "switch", "call"] if depth else [])))
        getattr(self, kind)() if depth == 0 or not hasattr(self, f"nest_{kind}") else getattr(self, f"nest_{kind}")(
            depth
        )

    def keep(self, *made: Value) -> None:
        self.values += made

    def map(self) -> None:
        a = self.pick()
        same = [v for v in self.values if v.shape == a.shape and v.dtype == a.dtype]
        inputs = [a, *self.data.draw(st.lists(st.sampled_from(same), max_size=2))]
        self.keep(build.map_(self.net, self.data.draw(expressions(len(inputs))), inputs))

    def reshape(self) -> None:
        a = self.pick()
        self.keep(build.reshape(self.net, a, (a.size,)))

    def permute(self) -> None:
        a = self.pick()
        self.keep(build.permute(self.net, a, self.data.draw(st.permutations(range(a.ndim)))))

    def reduce(self) -> None:
        a = self.pick()
        if a.ndim:
            dim = self.data.draw(st.integers(0, a.ndim - 1))
            self.keep(build.reduce(self.net, a, [dim], self.data.draw(st.sampled_from(["add", "max"])), keep=True))

    def slice(self) -> None:
        a = self.pick()
        if a.ndim and a.shape[0] > 1:
            self.keep(build.slice_(self.net, a, 0, 1, a.shape[0]))

    def concat(self) -> None:
        a = self.pick()
        if a.ndim and a.size < 64:
            self.keep(build.concat(self.net, [a, a], 0))

    def constant(self) -> None:
        shape = self.data.draw(st.sampled_from([(), (1,), (2, 3), (5, 7)]))
        numbers = self.data.draw(st.lists(NUMBERS, min_size=1, max_size=3))
        self.keep(self.net.constant(np.resize(np.array(numbers, np.float32), shape), f32))

    def nonlinearity(self) -> None:
        self.keep(build.nonlinearity(self.net, self.data.draw(st.sampled_from(["relu", "tanh", "gelu"])), self.pick()))

    def linear(self) -> None:
        a = self.pick()
        if a.ndim:
            weight = self.net.constant(np.ones((2, a.shape[-1])), a.dtype)
            self.keep(build.linear(self.net, a, weight))

    def softmax(self) -> None:
        a = self.pick()
        if a.ndim:
            self.keep(build.softmax(self.net, a, -1, log=self.data.draw(st.booleans())))

    # --- with bodies

    def body(self, like: Value, depth: int) -> Any:
        def build_body(net: BlockBuilder, *inside: Value) -> list[Value]:
            own = [v for v in inside if v.dtype.is_float]
            draw = Draw(self.data, net, own or [like])
            draw.values.append(self.pick())
            draw.some(3, depth - 1)
            fitting = [v for v in draw.values if v.type == like.type] or [like]
            return [self.data.draw(st.sampled_from(fitting))]

        return build_body

    def nest_loop(self, depth: int) -> None:
        a = self.pick()
        self.keep(*build.loop(self.net, self.data.draw(st.integers(0, 3)), [a], self.body(a, depth)))

    def nest_while(self, depth: int) -> None:
        a = self.pick()
        limit = self.net.constant(2, i32)

        def step(net: BlockBuilder, trip: Value, count: Value, value: Value) -> list[Value]:
            return [build.map_(net, arg(0) + 1, [count]), *self.body(a, depth)(net, value)]

        start = self.net.constant(0, i32)
        made = build.while_(
            self.net, [start, a], lambda net, n, _: build.map_(net, arg(0) < arg(1), [n, limit], bool_), step
        )
        self.keep(made[1])

    def predicate(self) -> Value:
        a = self.pick()
        total = build.reduce(self.net, a, range(a.ndim))
        return build.map_(self.net, arg(0) > 0.0, [total], bool_)

    def nest_cond(self, depth: int) -> None:
        a = self.pick()
        self.keep(*build.cond(self.net, self.predicate(), self.body(a, depth), self.body(a, depth)))

    def nest_switch(self, depth: int) -> None:
        a = self.pick()
        index = build.cast(self.net, self.predicate(), i32)
        self.keep(*build.switch(self.net, index, [self.body(a, depth) for _ in range(3)]))

    def nest_call(self, depth: int) -> None:
        from abele.network.ir import RegionBuilder

        a = self.pick()
        region = RegionBuilder(self.net)
        results = [region.read(v) for v in self.body(a, depth)(region, region.parameter(a))]
        function = NetworkFunction(f"f{len(self.net.root.ops)}_{len(self.values)}_{id(region)}", region.finish(results))
        self.keep(*build.call(self.net, function, [a, *region.captured]))


@st.composite
def networks(draw: Any, depth: int = 1, most: int = 8) -> Network:
    """A legal network with floats of a few shapes flowing through all kinds of ops."""
    data = draw(st.data())
    net = NetworkBuilder()
    for number in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from([(), (3,), (2, 3), (2, 3, 4)]))
        net.input(shape, draw(st.sampled_from([f32, f32, f16])), draw(NAMES))
        net.parameter(shape, f32, f"{draw(NAMES)}{number}")
    body = Draw(data, net, [v for v in (*net.inputs, *net.parameters) if v.dtype == f32])
    body.some(most, depth)
    place = Place(draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    with net.at(stage=Stage.BACKWARD, place=place):
        body.some(2, 0)
    for value in draw(st.lists(st.sampled_from(body.values), min_size=1, max_size=3)):
        net.output(value)
    parameter = net.parameters[0]
    fitting = [v for v in body.values if v.type == parameter.type]
    net.updates[parameter] = draw(st.sampled_from(fitting))
    labels = net.input((4,), i32, "labels")
    net.wide.add(labels)
    net.bound(labels, 10, draw(st.text(max_size=5)), draw(st.sampled_from([None, -100])))
    return net.finish()
