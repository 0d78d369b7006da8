"""Random programs over buffers in odd layouts, and what they come to, one kernel at a time in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding
from abele.kernels.nest.ir import Index, affine, apply, load, nest, select, store
from abele.kernels.nest.reference import evaluate
from abele.numerics import ElementType, f32, i32


@dataclass
class Tensor:
    """A logical tensor over a buffer whose own dims are split and permuted."""

    buffer: Buffer
    binding: OperandBinding
    value: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(n for n, _ in f) for f in self.binding.factors)

    def read(self, storage: np.ndarray) -> np.ndarray:
        """The logical elements in flat ``storage``."""
        index = np.full((), self.binding.offset)
        for factors in self.binding.factors:
            along = np.zeros((), np.int64)
            for extent, stride in factors:
                along = (along[..., None] + np.arange(extent) * stride).reshape(-1)
            index = index[..., None] + along
        return storage.reshape(-1)[index]


def layouts(shape: tuple[int, ...], split: int, order: int) -> tuple[tuple[int, ...], tuple]:
    """Shape of a variable and the factors of a view of ``shape``: one dim split, then all dims rotated."""
    parts = [(d, n, 1) for d, n in enumerate(shape)]
    for place, (d, n, _) in enumerate(parts):
        if split > 1 and n % split == 0:
            parts[place : place + 1] = [(d, n // split, 1), (d, split, 0)]
            break
    turned = parts[order % len(parts) :] + parts[: order % len(parts)] if parts else []
    strides, stride = {}, 1
    for part in reversed(turned):
        strides[part] = stride
        stride *= part[1]
    factors = tuple(tuple((p[1], strides[p]) for p in parts if p[0] == d) for d in range(len(shape)))
    return tuple(p[1] for p in turned), factors


class Maker:
    """Builds a program and its expected values side by side."""

    type: ElementType = f32

    def __init__(self, seed: int, batch: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batch = batch
        self.tensors: list[Tensor] = []
        self.calls: list[BoundKernel] = []
        self.start: dict[int, np.ndarray] = {}

    def tensor(self, shape: tuple[int, ...], pinned: bool) -> Tensor:
        own, factors = layouts(shape, int(self.rng.choice([1, 2, 4])), int(self.rng.integers(0, 4)))
        number = len(self.tensors)
        made = Tensor(Buffer(number, own, self.type, pinned, f"t{number}"), OperandBinding(number, factors))
        self.tensors.append(made)
        return made

    def source(self, shape: tuple[int, ...]) -> Tensor:
        made = self.tensor(shape, True)
        self.start[made.buffer.id] = self.values(made.buffer.shape)
        made.value = made.read(self.start[made.buffer.id])
        return made

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.uniform(-1, 1, shape).astype(np.float32)

    def call(self, name: str, inputs: list[Tensor], out: Tensor, *nests) -> Tensor:
        operands = [*inputs, out]
        types = tuple(t.buffer.type for t in operands)
        kernel = HostKernel(tuple(t.shape for t in operands), types, len(inputs), 1, nests)
        self.calls.append(BoundKernel(kernel, tuple(t.binding for t in operands), name))
        before = [] if out.value is None else [out.value]
        out.value = evaluate(kernel, [t.value for t in inputs] + before, precise=True)[0]
        return out

    def result(self, shape: tuple[int, ...]) -> Tensor:
        return self.tensor(shape, bool(self.rng.random() < 0.3))

    def step(self, x: Tensor) -> Tensor:
        """One more layer on ``x`` of shape [batch, channels, width]."""
        b, c, w = x.shape
        match int(self.rng.integers(0, 8)):
            case 0:
                body = select(load(0, "b", "c", "w") > 0.0, load(0, "b", "c", "w"), load(0, "b", "c", "w") * 0.1)
                loops = {"b": b, "c": c, "w": w}
                return self.call("leaky", [x], self.result(x.shape), nest(loops, store(1, ("b", "c", "w"), body)))
            case 1:
                o = int(self.rng.choice([1, 3, 8]))
                weight = self.source((o, c, 3))
                window = load(0, "b", "c", affine("w", "k", const=-1), fill=0.0) * load(1, "o", "c", "k")
                loops = {"b": b, "o": o, "w": w, "c": c, "k": 3}
                return self.call(
                    "conv", [x, weight], self.result((b, o, w)), nest(loops, store(2, ("b", "o", "w"), window, "add"))
                )
            case 2:
                top, power, total, y = (self.result(s) for s in ((b, c), x.shape, (b, c), x.shape))
                loops, at, row = {"b": b, "c": c, "w": w}, ("b", "c", "w"), ("b", "c")
                self.call("max", [x], top, nest(loops, store(1, row, load(0, *at), "max")))
                self.call("exp", [x, top], power, nest(loops, store(2, at, apply("exp", load(0, *at) - load(1, *row)))))
                self.call("sum", [power], total, nest(loops, store(1, row, load(0, *at), "add")))
                return self.call("divide", [power, total], y, nest(loops, store(2, at, load(0, *at) / load(1, *row))))
            case 3 if w % 2 == 0:
                loops, at = {"b": b, "c": c, "w": w // 2, "k": 2}, ("b", "c", affine(("w", 2), "k"))
                y = self.call(
                    "pool",
                    [x],
                    self.result((b, c, w // 2)),
                    nest(loops, store(1, ("b", "c", "w"), load(0, *at), "max")),
                )
                body = select(load(0, *at).eq(load(1, "b", "c", "w")), load(1, "b", "c", "w"), 0.0)
                return self.call("unpool", [x, y], self.result(x.shape), nest(loops, store(2, at, body, "add")))
            case 4:
                grad = self.tensor((c, c), True)
                value = load(0, "b", "c", "w") * load(0, "b", "d", "w")
                self.call("gram", [x], grad, nest({"b": b, "c": c, "d": c, "w": w}, store(1, ("c", "d"), value, "add")))
                # A mean: beside a large sum, numbers that differ in 64 bits would be equal in 32, and pools find both.
                scale = load(0, "b", "c", "w") * 0.5 + load(1, "c", "c") * (1.0 / (b * w))
                loops = {"b": b, "c": c, "w": w}
                return self.call(
                    "scale", [x, grad], self.result(x.shape), nest(loops, store(2, ("b", "c", "w"), scale * 0.1))
                )
            case 5:
                total = self.source((c,))
                loops = {"b": b, "c": c, "w": w}
                body = store(1, ("c",), load(0, "b", "c", "w"), "add", accumulate=True)
                self.call("accumulate", [x], total, nest(loops, body))
                return x
            case 6:
                stride = store(1, ("b", "c", affine(("w", 2), "k", const=-1)), load(0, "b", "c", "w") * 0.5, "add")
                return self.call(
                    "spread", [x], self.result((b, c, 2 * w)), nest({"b": b, "c": c, "w": w, "k": 3}, stride)
                )
            case _:
                y = self.result((b, w, c))
                loops = {"b": b, "c": c, "w": w}
                return self.call("turn", [x], y, nest(loops, store(1, ("b", "w", "c"), load(0, "b", "c", "w"))))

    def finish(self, x: Tensor) -> None:
        """Copy ``x`` to a buffer of the caller's."""
        out = self.tensor(x.shape, True)
        names = [f"d{n}" for n in range(len(x.shape))]
        self.call("copy", [x], out, nest(dict(zip(names, x.shape, strict=True)), store(1, names, load(0, *names))))

    def storage(self) -> dict[int, np.ndarray]:
        """Contents of the caller's buffers before."""
        pinned = [t.buffer for t in self.tensors if t.buffer.pinned]
        return {b.id: self.start.get(b.id, np.zeros(b.shape, b.type.np)).copy() for b in pinned}


class IntegerMaker(Maker):
    """The same with 32-bit integers, of which every order of sums gives the same bits."""

    type = i32

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.integers(-9, 10, shape).astype(np.int32)

    def step(self, x: Tensor) -> Tensor:
        b, c, w = x.shape
        loops, at = {"b": b, "c": c, "w": w}, ("b", "c", "w")
        match int(self.rng.integers(0, 6)):
            case 0:
                body = select(load(0, *at) > 0, load(0, *at), -load(0, *at)) + Index(affine("w", ("c", 3)))
                return self.call("fold", [x], self.result(x.shape), nest(loops, store(1, at, body)))
            case 1:
                window = load(0, "b", "c", affine("w", ("k", -1), const=1), fill=-7)
                body = store(1, at, window, str(self.rng.choice(["max", "min", "add"])))
                return self.call("window", [x], self.result(x.shape), nest({**loops, "k": 3}, body))
            case 2:
                total = self.result((c,))
                self.call("total", [x], total, nest(loops, store(1, ("c",), load(0, *at), "add")))
                body = load(0, *at) - load(1, "c")
                return self.call("centre", [x, total], self.result(x.shape), nest(loops, store(2, at, body)))
            case 3:
                weight = self.source((5, c))
                body = load(0, *at) * load(1, "o", "c")
                item = nest({**loops, "o": 5}, store(2, ("b", "o", "w"), body, "add"))
                return self.call("mix", [x, weight], self.result((b, 5, w)), item)
            case 4:
                target = ("b", affine("c", const=-1), "w")
                before = self.source(x.shape)
                item = nest(loops, store(1, target, load(0, *at), "add", accumulate=True))
                return self.call("shift", [x], before, item)
            case _:
                y = self.result((b, w, c))
                return self.call("turn", [x], y, nest(loops, store(1, ("b", "w", "c"), load(0, *at))))
