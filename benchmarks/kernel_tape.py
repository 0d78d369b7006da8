"""Training steps as host kernels: each layer appends its forward calls and, later, the backward ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from abele.kernels import BoundKernel, Buffer, OperandBinding, bind
from abele.kernels.nest.ir import Cast, Expr, HostKernel, Index, Nest, Random, affine, apply, load, nest, select, store
from abele.numerics import ElementType, f32, i32, u32

LEAK = 0.01
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Value:
    """A buffer with the buffer of its gradient, if there is one yet."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.shape = buffer, buffer.shape
        self.grad: Value | None = None


class Tape:
    """Buffers and calls of one training step.

    Attributes:
        buffers: All buffers.
        calls: Calls so far; ``backward`` appends those of the gradients, ``adam`` those of the optimiser.
        parameters: Trained values, by name.
        loss: Scalar buffer of the summed loss.
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.calls: list[BoundKernel] = []
        self.parameters: dict[str, Value] = {}
        self._pullbacks: list[Callable[[], None]] = []
        self._flops = 0

    def buffer(self, shape: tuple[int, ...], name: str, type_: ElementType = f32, *, pinned: bool = False) -> Value:
        item = Buffer(len(self.buffers), shape, type_, pinned, name)
        self.buffers.append(item)
        return Value(item)

    def parameter(self, shape: tuple[int, ...], name: str) -> Value:
        self.parameters[name] = self.buffer(shape, name, pinned=True)
        return self.parameters[name]

    def call(
        self, name: str, inputs: list[Value | OperandBinding], outputs: list[Value | OperandBinding], *nests: Nest
    ) -> None:
        bindings = tuple(bind(v.buffer) if isinstance(v, Value) else v for v in (*inputs, *outputs))
        shapes = tuple(tuple(math.prod(e for e, _ in f) for f in b.factors) for b in bindings)
        types = tuple(self.buffers[b.buffer].type for b in bindings)
        self.calls.append(BoundKernel(HostKernel(shapes, types, len(inputs), len(outputs), nests), bindings, name))

    def map(self, name: str, inputs: list[Value], body: Callable[..., Expr], out: Value | None = None) -> Value:
        """An element-wise function of values of one shape, or of one element."""
        shape = max((v.shape for v in inputs), key=len)
        out = out or self.buffer(shape, name)
        names = [f"d{n}" for n in range(len(shape))]
        args = [load(n, *(names if v.shape else ())) for n, v in enumerate(inputs)]
        loops = dict(zip(names, shape, strict=True))
        self.call(name, list(inputs), [out], nest(loops, store(len(inputs), names, body(*args))))
        return out

    def backward(self) -> None:
        for pull in reversed(self._pullbacks):
            pull()

    def add_grad(self, value: Value, grad: Value) -> None:
        """Add ``grad`` to what ``value`` has."""
        if value.grad is None:
            value.grad = grad
        else:
            value.grad = self.map("grad_sum", [value.grad, grad], lambda a, b: a + b)

    # Layers

    def conv(self, x: Value, out: int, k: int, name: str, pad: int = 0) -> Value:
        """2-D convolution, stride 1, with bias."""
        b, c, h, w = x.shape
        oh, ow = h + 2 * pad - k + 1, w + 2 * pad - k + 1
        weight, bias = self.parameter((out, c, k, k), f"{name}.weight"), self.parameter((out,), f"{name}.bias")
        y = self.buffer((b, out, oh, ow), f"{name}.sum")
        loops = {"b": b, "o": out, "i": oh, "j": ow, "c": c, "p": k, "q": k}
        fill = 0.0 if pad else None
        window = load(0, "b", "c", affine("i", "p", -pad), affine("j", "q", -pad), fill=fill)
        body = store(2, ("b", "o", "i", "j"), window * load(1, "o", "c", "p", "q"), "add")
        self.call(name, [x, weight], [y], nest(loops, body))
        result = self._add_bias(y, bias, name)

        def pull() -> None:
            dy = result.grad
            assert dy is not None
            dw = self.buffer(weight.shape, f"{name}.dw")
            window = load(0, "b", "c", affine("i", "p", -pad), affine("j", "q", -pad), fill=fill)
            body = store(2, ("o", "c", "p", "q"), window * load(1, "b", "o", "i", "j"), "add")
            self.call(f"{name}.dw", [x, dy], [dw], nest(loops, body))
            weight.grad = dw
            if x.buffer.name == "input":
                return
            dx = self.buffer(x.shape, f"{name}.dx")
            row, column = affine("i", ("p", -1), pad), affine("j", ("q", -1), pad)
            body = store(
                2, ("b", "c", "i", "j"), load(0, "b", "o", row, column, fill=0.0) * load(1, "o", "c", "p", "q"), "add"
            )
            self.call(
                f"{name}.dx", [dy, weight], [dx], nest({"b": b, "c": c, "i": h, "j": w, "o": out, "p": k, "q": k}, body)
            )
            self.add_grad(x, dx)

        self._pullbacks.append(pull)
        self._pullbacks[-2:] = [self._pullbacks[-1], self._pullbacks[-2]]
        return result

    def _add_bias(self, y: Value, bias: Value, name: str) -> Value:
        result = self.buffer(y.shape, f"{name}.y")
        names = [f"d{n}" for n in range(len(y.shape))]
        loops = dict(zip(names, y.shape, strict=True))
        self.call(f"{name}.bias", [y, bias], [result], nest(loops, store(2, names, load(0, *names) + load(1, "d1"))))

        def pull() -> None:
            assert result.grad is not None
            db = self.buffer(bias.shape, f"{name}.db")
            self.call(f"{name}.db", [result.grad], [db], nest(loops, store(1, ("d1",), load(0, *names), "add")))
            bias.grad = db

        self._pullbacks.append(pull)
        return result

    def linear(self, x: Value, out: int, name: str) -> Value:
        """Fully connected layer with bias; all dims of ``x`` but the first are features."""
        b, k = x.shape[0], math.prod(x.shape[1:])
        weight, bias = self.parameter((out, k), f"{name}.weight"), self.parameter((out,), f"{name}.bias")
        y = self.buffer((b, out), f"{name}.sum")
        flat = OperandBinding(x.buffer.id, (((b, k),), ((k, 1),)))
        loops = {"b": b, "n": out, "k": k}
        body = store(2, ("b", "n"), load(0, "b", "k") * load(1, "n", "k"), "add")
        self.call(name, [flat, weight], [y], nest(loops, body))
        result = self._add_bias(y, bias, name)

        def pull() -> None:
            dy = result.grad
            assert dy is not None
            dw = self.buffer(weight.shape, f"{name}.dw")
            body = store(2, ("n", "k"), load(0, "b", "n") * load(1, "b", "k"), "add")
            self.call(f"{name}.dw", [dy, flat], [dw], nest(loops, body))
            weight.grad = dw
            if x.buffer.name == "input":
                return
            dx = self.buffer(x.shape, f"{name}.dx")
            into = OperandBinding(dx.buffer.id, flat.factors)
            body = store(2, ("b", "k"), load(0, "b", "n") * load(1, "n", "k"), "add")
            self.call(f"{name}.dx", [dy, weight], [into], nest(loops, body))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)
        self._pullbacks[-2:] = [self._pullbacks[-1], self._pullbacks[-2]]
        return result

    def leaky(self, x: Value, slope: float, name: str) -> Value:
        """LeakyReLU; ReLU for slope 0."""
        y = self.map(name, [x], lambda v: select(v > 0.0, v, v * slope))

        def pull() -> None:
            assert y.grad is not None
            self.add_grad(x, self.map(f"{name}.dx", [y, y.grad], lambda v, d: select(v > 0.0, d, d * slope)))

        self._pullbacks.append(pull)
        return y

    def add(self, x: Value, y: Value, name: str) -> Value:
        result = self.map(name, [x, y], lambda a, b: a + b)

        def pull() -> None:
            assert result.grad is not None
            self.add_grad(x, result.grad)
            self.add_grad(y, result.grad)

        self._pullbacks.append(pull)
        return result

    def product(self, x: Value, y: Value, shape: tuple[int, ...], spec: str, name: str) -> Value:
        """Batched matrix product written as in ``bci,bcj->bij``, over views with positions flattened."""
        ins, out = spec.split("->")
        xs, ys = ins.split(",")
        extents = {
            d: n for v, names in ((x, xs), (y, ys)) for d, n in zip(names, _flat_shape(v, len(names)), strict=True)
        }
        result = self.buffer(shape, name)

        def run(label: str, target: Value, names: str, a: Value, a_names: str, b: Value, b_names: str) -> None:
            views: list[Value | OperandBinding] = [_flat(a, len(a_names)), _flat(b, len(b_names))]
            body = store(2, tuple(names), load(0, *a_names) * load(1, *b_names), "add")
            self.call(label, views, [_flat(target, len(names))], nest(extents, body))

        run(name, result, out, x, xs, y, ys)

        def pull() -> None:
            assert result.grad is not None
            dx, dy = self.buffer(x.shape, f"{name}.da"), self.buffer(y.shape, f"{name}.db")
            run(f"{name}.da", dx, xs, result.grad, out, y, ys)
            run(f"{name}.db", dy, ys, result.grad, out, x, xs)
            self.add_grad(x, dx)
            self.add_grad(y, dy)

        self._pullbacks.append(pull)
        return result

    def softmax(self, x: Value, name: str) -> Value:
        """Softmax over the last dim of [b, i, j]."""
        b, i, j = x.shape
        loops = {"b": b, "i": i, "j": j}
        top, total = self.buffer((b, i), f"{name}.max"), self.buffer((b, i), f"{name}.sum")
        power, y = self.buffer(x.shape, f"{name}.exp"), self.buffer(x.shape, name)
        all_, row = ("b", "i", "j"), ("b", "i")
        self.call(f"{name}.max", [x], [top], nest(loops, store(1, row, load(0, *all_), "max")))
        self.call(
            f"{name}.exp", [x, top], [power], nest(loops, store(2, all_, apply("exp", load(0, *all_) - load(1, *row))))
        )
        self.call(f"{name}.sum", [power], [total], nest(loops, store(1, row, load(0, *all_), "add")))
        self.call(name, [power, total], [y], nest(loops, store(2, all_, load(0, *all_) / load(1, *row))))

        def pull() -> None:
            assert y.grad is not None
            dot, dx = self.buffer((b, i), f"{name}.dot"), self.buffer(x.shape, f"{name}.dx")
            self.call(
                f"{name}.dot", [y, y.grad], [dot], nest(loops, store(2, row, load(0, *all_) * load(1, *all_), "add"))
            )
            body = load(0, *all_) * (load(1, *all_) - load(2, *row))
            self.call(f"{name}.dx", [y, y.grad, dot], [dx], nest(loops, store(3, all_, body)))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)
        return y

    def max_pool(self, x: Value, name: str) -> Value:
        """2x2 max-pool."""
        b, c, h, w = x.shape
        y = self.buffer((b, c, h // 2, w // 2), name)
        loops = {"b": b, "c": c, "i": h // 2, "j": w // 2, "p": 2, "q": 2}
        at, cell = ("b", "c", affine(("i", 2), "p"), affine(("j", 2), "q")), ("b", "c", "i", "j")
        self.call(name, [x], [y], nest(loops, store(1, cell, load(0, *at), "max")))

        def pull() -> None:
            assert y.grad is not None
            dx = self.buffer(x.shape, f"{name}.dx")
            value = select(load(0, *at).eq(load(1, *cell)), load(2, *cell), 0.0)
            self.call(f"{name}.dx", [x, y, y.grad], [dx], nest(loops, store(3, at, value, "add")))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)
        return y

    def dropout(self, x: Value, rate: float, seed: Value, name: str) -> Value:
        """Zero each element with probability ``rate``, scale the rest."""
        b, k = x.shape
        scale, limit = 1.0 / (1.0 - rate), int(rate * 2**32)
        loops = {"b": b, "k": k}

        def kept(value: Expr) -> Expr:
            return select(Random(1, 7, affine(("b", k), "k")) >= _u32(limit), value * scale, 0.0)

        y = self.buffer(x.shape, name)
        self.call(name, [x, seed], [y], nest(loops, store(2, ("b", "k"), kept(load(0, "b", "k")))))

        def pull() -> None:
            assert y.grad is not None
            dx = self.buffer(x.shape, f"{name}.dx")
            self.call(f"{name}.dx", [y.grad, seed], [dx], nest(loops, store(2, ("b", "k"), kept(load(0, "b", "k")))))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)
        return y

    def nll(self, x: Value, label: Value, loss: Value) -> None:
        """Mean negative log-likelihood of the labels under softmax of ``x``."""
        b, c = x.shape
        loops = {"b": b, "c": c}
        top, total = self.buffer((b,), "nll.max"), self.buffer((b,), "nll.sum")
        self.call("nll.max", [x], [top], nest(loops, store(1, ("b",), load(0, "b", "c"), "max")))
        power = apply("exp", load(0, "b", "c") - load(1, "b"))
        self.call("nll.sum", [x, top], [total], nest(loops, store(2, ("b",), power, "add")))
        log_p = load(0, "b", "c") - load(1, "b") - apply("log", load(2, "b"))
        picked = Index(affine("c")).eq(load(3, "b"))
        self.call(
            "nll",
            [x, top, total, label],
            [loss],
            nest(loops, store(4, (), select(picked, log_p * (-1.0 / b), 0.0), "add")),
        )

        def pull() -> None:
            dx = self.buffer(x.shape, "nll.dx")
            body = apply("exp", load(0, "b", "c") - load(1, "b")) / load(2, "b")
            target = select(picked, 1.0, 0.0)
            body = (body - target) * (1.0 / b)
            self.call("nll.dx", [x, top, total, label], [dx], nest(loops, store(4, ("b", "c"), body)))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)

    def mse(self, x: Value, target: Value, loss: Value) -> None:
        """Mean squared error."""
        b, c = x.shape
        difference = load(0, "b", "c") - load(1, "b", "c")
        loops = {"b": b, "c": c}
        self.call(
            "mse", [x, target], [loss], nest(loops, store(2, (), apply("square", difference) * (1.0 / (b * c)), "add"))
        )

        def pull() -> None:
            dx = self.buffer(x.shape, "mse.dx")
            self.call("mse.dx", [x, target], [dx], nest(loops, store(2, ("b", "c"), difference * (2.0 / (b * c)))))
            self.add_grad(x, dx)

        self._pullbacks.append(pull)

    def adam(self, rate: float) -> None:
        """Update all parameters, in place."""
        step = self.buffer((), "step", pinned=True)
        scale = self.buffer((2,), "adam.scale")
        self.call("adam.step", [step], [step], nest({}, store(1, (), load(0) + 1.0)))
        first = store(1, (0,), rate / (1.0 - apply("pow", BETA1, load(0))))
        second = store(1, (1,), apply("inv", apply("sqrt", 1.0 - apply("pow", BETA2, load(0)))))
        self.call("adam.scale", [step], [scale], nest({}, first), nest({}, second))
        for name, value in self.parameters.items():
            assert value.grad is not None
            m, v = (
                self.buffer(value.shape, f"{name}.m", pinned=True),
                self.buffer(value.shape, f"{name}.v", pinned=True),
            )
            names = [f"d{n}" for n in range(len(value.shape))]
            w, g, m0, v0 = (load(n, *names) for n in range(4))
            m1 = m0 * BETA1 + g * (1.0 - BETA1)
            v1 = v0 * BETA2 + g * g * (1.0 - BETA2)
            new = w - load(4, 0) * m1 / (apply("sqrt", v1) * load(4, 1) + EPSILON)
            stores = [store(5, names, new), store(6, names, m1), store(7, names, v1)]
            loops = dict(zip(names, value.shape, strict=True))
            self.call(f"{name}.adam", [value, value.grad, m, v, scale], [value, m, v], nest(loops, *stores))


def _u32(value: int) -> Expr:
    return Cast(u32, as_const(value))


def as_const(value: int) -> Expr:
    """``value`` as an i32 or u32 constant."""
    from abele.kernels.nest.ir import Const

    return Const(value, u32 if value >= 2**31 else i32)


def _flat_shape(value: Value, rank: int) -> tuple[int, ...]:
    return (*value.shape[: rank - 1], math.prod(value.shape[rank - 1 :]))


def _flat(value: Value, rank: int) -> OperandBinding:
    """The view with all dims from ``rank`` - 1 on as one."""
    shape = _flat_shape(value, rank)
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return OperandBinding(value.buffer.id, tuple(((n, s),) for n, s in zip(shape, reversed(strides), strict=True)))
