"""Random programs over buffers in odd layouts: the plan against one kernel at a time in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_kit import run_plan

from abele.kernels import Binding, Buffer, Call, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, apply, load, nest, select, store
from abele.kernels.nest.reference import evaluate
from abele.numerics import f32


@dataclass
class Tensor:
    """A logical tensor over a buffer whose own dims are split and permuted."""

    buffer: Buffer
    binding: Binding
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

    def __init__(self, seed: int, batch: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batch = batch
        self.tensors: list[Tensor] = []
        self.calls: list[Call] = []
        self.start: dict[int, np.ndarray] = {}

    def tensor(self, shape: tuple[int, ...], pinned: bool) -> Tensor:
        own, factors = layouts(shape, int(self.rng.choice([1, 2, 4])), int(self.rng.integers(0, 4)))
        number = len(self.tensors)
        made = Tensor(Buffer(number, own, f32, pinned, f"t{number}"), Binding(number, factors))
        self.tensors.append(made)
        return made

    def source(self, shape: tuple[int, ...]) -> Tensor:
        made = self.tensor(shape, True)
        self.start[made.buffer.id] = self.rng.uniform(-1, 1, made.buffer.shape).astype(np.float32)
        made.value = made.read(self.start[made.buffer.id])
        return made

    def call(self, name: str, inputs: list[Tensor], out: Tensor, *nests) -> Tensor:
        operands = [*inputs, out]
        kernel = HostKernel(tuple(t.shape for t in operands), (f32,) * len(operands), len(inputs), 1, nests)
        self.calls.append(Call(kernel, tuple(t.binding for t in operands), name))
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


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 3, 8, 20, 32]), layers=st.integers(1, 6))
def test_program__random_layers_and_layouts__matches_one_kernel_at_a_time(seed, batch, layers):
    maker = Maker(seed, batch)
    x = maker.source((batch, int(maker.rng.choice([1, 4, 6])), int(maker.rng.choice([4, 6, 10]))))
    for _ in range(layers):
        x = maker.step(x)
        if x.shape[2] > 24:
            break
    out = maker.tensor(x.shape, True)
    names = ("b", "c", "w")
    maker.call("copy", [x], out, nest(dict(zip(names, x.shape, strict=True)), store(1, names, load(0, *names))))
    plan = plan_native([t.buffer for t in maker.tensors], maker.calls)
    results = []
    for threads in (1, 2):
        storage = {
            t.buffer.id: maker.start.get(t.buffer.id, np.zeros(t.buffer.shape, np.float32)).copy()
            for t in maker.tensors
            if t.buffer.pinned
        }
        run_plan(plan, storage, threads)
        results.append(storage)
    for t in maker.tensors:
        if t.buffer.pinned and t.value is not None:
            np.testing.assert_allclose(t.read(results[0][t.buffer.id]), t.value, rtol=2e-4, atol=2e-4)
            np.testing.assert_array_equal(results[0][t.buffer.id], results[1][t.buffer.id])


def test_fuse__slots_of_one_tensor__one_leaf_that_agrees_with_numpy() -> None:
    x, state = np.random.default_rng(3).uniform(-2, 2, (2, 24, 40)).astype(np.float32)
    shapes = ((24, 40), (2, 24, 40), (24, 40))
    buffers = [Buffer(n, shape, f32, n != 1, f"b{n}") for n, shape in enumerate(shapes)]
    space, at = {"i": 24, "j": 40}, ("i", "j")

    def call(name: str, operands: tuple[int, ...], num_inputs: int, *stores) -> Call:
        kernel = HostKernel(
            tuple(shapes[n] for n in operands), (f32,) * len(operands), num_inputs, 1, (nest(space, *stores),)
        )
        return Call(kernel, tuple(bind(buffers[n]) for n in operands), name)

    slots = [load(0, slot, *at) for slot in (0, 1)]
    calls = [
        call("gates", (0, 1), 1, *(store(1, (s, *at), apply(f, load(0, *at))) for s, f in enumerate(("tanh", "exp")))),
        call("cell", (1, 2, 2), 2, store(2, at, slots[0] * load(1, *at) + slots[1])),
    ]
    plan = plan_native(buffers, calls)
    storage = {0: x.copy(), 2: state.copy()}
    run_plan(plan, storage)
    np.testing.assert_allclose(storage[2], np.tanh(x) * state + np.exp(x), rtol=1e-5, atol=1e-6)
    assert len(plan.leaves) == 1
    assert plan.arena_bytes == 0 == plan.scratch_bytes


def test_fuse__slot_read_at_other_points__values_as_stored_before() -> None:
    x = np.random.default_rng(4).uniform(-2, 2, (16, 32)).astype(np.float32)
    shapes = ((16, 32), (2, 16, 32), (16, 32))
    buffers = [Buffer(n, shape, f32, n != 1, f"b{n}") for n, shape in enumerate(shapes)]
    space, at = {"i": 16, "j": 32}, ("i", "j")
    split = HostKernel(
        shapes[:2],
        (f32, f32),
        1,
        1,
        (nest(space, store(1, (0, *at), load(0, *at)), store(1, (1, *at), -load(0, *at))),),
    )
    turned = load(0, 1, affine(("i", -1), const=15), "j")
    join = HostKernel(shapes[1:], (f32, f32), 1, 1, (nest(space, store(1, at, load(0, 0, *at) * turned)),))
    views = tuple(map(bind, buffers))
    storage = {0: x.copy(), 2: np.zeros_like(x)}
    run_plan(plan_native(buffers, [Call(split, views[:2], "split"), Call(join, views[1:], "join")]), storage)
    np.testing.assert_allclose(storage[2], -x * x[::-1], rtol=1e-6)
