"""Small programs, each of which shows what some of the planner's passes do."""

from __future__ import annotations

from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, copy_kernel
from abele.kernels.nest.ir import Index, affine, apply, load, nest, select, store
from abele.numerics import ElementType, bool_, f16, f32, i32

BATCH, WIDTH, UNITS = 32, 12, 6


class Calls:
    """Buffers and calls while they are written down."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.calls: list[BoundKernel] = []

    def buffer(self, shape: tuple[int, ...], name: str, pinned: bool = False, type_: ElementType = f32) -> Buffer:
        self.buffers.append(Buffer(len(self.buffers), shape, type_, pinned, name))
        return self.buffers[-1]

    def call(self, name: str, inputs: list[Buffer], output: Buffer, loops: dict[str, int], index, value, combine="set"):
        operands = [*inputs, output]
        body = nest(loops, store(len(inputs), index, value, combine))
        types = tuple(b.type for b in operands)
        kernel = HostKernel(tuple(b.shape for b in operands), types, len(inputs), 1, (body,))
        self.calls.append(BoundKernel(kernel, tuple(map(bind, operands)), name, frozenset({len(self.calls)})))


def training_step() -> Calls:
    """Two dense layers with their weight gradients."""
    made = Calls()
    x, w = made.buffer((BATCH, WIDTH), "x", True), made.buffer((UNITS, WIDTH), "w", True)
    y, z = made.buffer((BATCH, UNITS), "y"), made.buffer((BATCH, UNITS), "z")
    dw, norm = made.buffer((UNITS, WIDTH), "dw"), made.buffer((BATCH, UNITS), "norm", True)
    total = made.buffer((UNITS,), "total")
    every = {"b": BATCH, "n": UNITS, "k": WIDTH}
    rows = {"b": BATCH, "n": UNITS}
    made.call("dense", [x, w], y, every, ("b", "n"), load(0, "b", "k") * load(1, "n", "k"), "add")
    made.call("relu", [y], z, rows, ("b", "n"), select(load(0, "b", "n") > 0.0, load(0, "b", "n"), 0.0))
    made.call("grad", [z, x], dw, every, ("n", "k"), load(0, "b", "n") * load(1, "b", "k"), "add")
    made.call("sgd", [w, dw], w, {"n": UNITS, "k": WIDTH}, ("n", "k"), load(0, "n", "k") - load(1, "n", "k") * 0.1)
    made.call("total", [z], total, rows, ("n",), load(0, "b", "n"), "add")
    made.call("norm", [z, total], norm, rows, ("b", "n"), load(0, "b", "n") / (load(1, "n") + 1.0))
    return made


def samples_in_blocks() -> Calls:
    """64 samples of 8 features, which the plan keeps in blocks of 16 with the features in between."""
    made = Calls()
    x, y = made.buffer((64, 8), "x", True), made.buffer((64, 8), "y", True)
    middle = made.buffer((4, 8, 16), "middle")
    view = OperandBinding(middle.id, (((4, 128), (16, 1)), ((8, 16),)))
    made.calls = [
        BoundKernel(copy_kernel((64, 8), f32), (bind(x), view), "in"),
        BoundKernel(copy_kernel((64, 8), f32), (view, bind(y)), "out"),
    ]
    return made


def outputs_in_groups() -> Calls:
    """A wide layer and a narrow one of 64 samples, whose outputs the caller keeps in groups of 16 samples."""
    made = Calls()
    x, w = made.buffer((64, 128), "x", True), made.buffer((64, 128), "w", True)
    v, y = made.buffer((2, 64), "v", True), made.buffer((64, 64), "y")
    out = made.buffer((4, 2, 16), "out", True)
    made.call("wide", [x, w], y, {"b": 64, "n": 64, "k": 128}, ("b", "n"), load(0, "b", "k") * load(1, "n", "k"), "add")
    narrow = nest({"b": 64, "n": 2, "k": 64}, store(2, ("b", "n"), load(0, "b", "k") * load(1, "n", "k"), "add"))
    kernel = HostKernel(((64, 64), (2, 64), (64, 2)), (f32,) * 3, 2, 1, (narrow,))
    groups = OperandBinding(out.id, (((4, 32), (16, 1)), ((2, 16),)))
    made.calls.append(BoundKernel(kernel, (bind(y), bind(v), groups), "narrow", frozenset({1})))
    return made


def grains() -> Calls:
    """16 samples of 32 channels, which the plan keeps by grains of 8 channels with the samples between."""
    made = Calls()
    x, bias, y = made.buffer((16, 32), "x", True), made.buffer((32,), "bias", True), made.buffer((16,), "y", True)
    middle = made.buffer((4, 16, 8), "middle")
    view = OperandBinding(middle.id, (((16, 8),), ((4, 128), (8, 1))))
    made.call("norm", [x, bias], y, {"b": 16, "c": 32}, ("b",), load(0, "b", "c") * load(1, "c"), "add")
    shift = nest({"b": 16, "c": 32}, store(2, ("b", "c"), load(0, "b", "c") + load(1, "c")))
    kernel = HostKernel(((16, 32), (32,), (16, 32)), (f32,) * 3, 2, 1, (shift,))
    made.calls.insert(0, BoundKernel(kernel, (bind(x), bind(bias), view), "shift", frozenset({1})))
    made.calls[1] = BoundKernel(made.calls[1].kernel, (view, bind(bias), bind(y)), "norm", frozenset({2}))
    return made


def convolution() -> Calls:
    """A window over the edge of images of 16-bit elements, every one of which is used often."""
    made = Calls()
    x, w = made.buffer((2, 14, 64), "x", True, f16), made.buffer((64, 3, 64), "w", True, f16)
    y = made.buffer((2, 14, 64), "y", True, f16)
    window = load(0, "b", affine("i", "k", const=-1), "c", fill=0.0) * load(1, "o", "k", "c")
    loops = {"b": 2, "i": 14, "o": 64, "k": 3, "c": 64}
    made.call("conv", [x, w], y, loops, ("b", "i", "o"), window, "add")
    return made


def long_product() -> Calls:
    """A product with a long reduction, whose second operand is read across its rows."""
    made = Calls()
    a, b = made.buffer((256, 2048), "a", True), made.buffer((2048, 512), "b", True)
    c = made.buffer((256, 512), "c", True)
    made.call(
        "product", [a, b], c, {"i": 256, "j": 512, "k": 2048}, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add"
    )
    return made


def narrow_gradient() -> Calls:
    """The weight gradient of a narrow layer over many samples, of which 16 parts are not all alike."""
    made = Calls()
    g, x = made.buffer((20003, 12), "g", True), made.buffer((20003, 16), "x", True)
    dw = made.buffer((12, 16), "dw", True)
    made.call(
        "grad", [g, x], dw, {"b": 20003, "n": 12, "k": 16}, ("n", "k"), load(0, "b", "n") * load(1, "b", "k"), "add"
    )
    return made


def softmax() -> Calls:
    """A softmax along rows that are long."""
    made = Calls()
    x, y = made.buffer((64, 1000), "x", True), made.buffer((64, 1000), "y", True)
    top, power, total = made.buffer((64,), "top"), made.buffer((64, 1000), "power"), made.buffer((64,), "total")
    loops, at = {"b": 64, "i": 1000}, ("b", "i")
    made.call("max", [x], top, loops, ("b",), load(0, *at), "max")
    made.call("exp", [x, top], power, loops, at, apply("exp", load(0, *at) - load(1, "b")))
    made.call("sum", [power], total, loops, ("b",), load(0, *at), "add")
    made.call("divide", [power, total], y, loops, at, load(0, *at) / load(1, "b"))
    return made


def attention() -> Calls:
    """Two batched products with a softmax between them, for each of two samples and three heads."""
    made = Calls()
    q, k, v, y = (made.buffer((2, 3, 32, 16), name, True) for name in "qkvy")
    scores, shares = made.buffer((2, 3, 32, 32), "scores"), made.buffer((2, 3, 32, 32), "shares")
    top, power, total = (
        made.buffer((2, 3, 32), "top"),
        made.buffer((2, 3, 32, 32), "power"),
        made.buffer((2, 3, 32), "total"),
    )
    loops, at, row = {"b": 2, "h": 3, "i": 32, "j": 32}, ("b", "h", "i", "j"), ("b", "h", "i")
    every = {**loops, "d": 16}
    made.call("scores", [q, k], scores, every, at, load(0, *"bhid") * load(1, *"bhjd"), "add")
    made.call("max", [scores], top, loops, row, load(0, *at), "max")
    made.call("exp", [scores, top], power, loops, at, apply("exp", load(0, *at) - load(1, *row)))
    made.call("sum", [power], total, loops, row, load(0, *at), "add")
    made.call("divide", [power, total], shares, loops, at, load(0, *at) / load(1, *row))
    made.call("mix", [shares, v], y, every, ("b", "h", "i", "d"), load(0, *at) * load(1, *"bhjd"), "add")
    return made


def causal_shares() -> Calls:
    """Shares that are zero for later keys, and what they make of values, and of a gradient for these."""
    made = Calls()
    q, k, v, g, y, dv = (made.buffer((2, 64, 16), name, True) for name in ("q", "k", "v", "g", "y", "dv"))
    scores, shares = made.buffer((2, 64, 64), "scores"), made.buffer((2, 64, 64), "shares")
    loops, at = {"b": 2, "i": 64, "j": 64}, ("b", "i", "j")
    every = {**loops, "d": 16}
    made.call("scores", [q, k], scores, every, at, load(0, *"bid") * load(1, *"bjd"), "add")
    seen = select(Index(affine("j", ("i", -1))) <= 0, load(0, *at), 0.0)
    made.call("mask", [scores], shares, loops, at, seen)
    made.call("mix", [shares, v], y, every, ("b", "i", "d"), load(0, *at) * load(1, *"bjd"), "add")
    made.call("dv", [shares, g], dv, every, ("b", "j", "d"), load(0, *at) * load(1, *"bid"), "add")
    return made


def packed_shares() -> Calls:
    """Shares of keys that have a query's number of sequence, for two heads, and what they make of values."""
    made = Calls()
    q, k, v, y = (made.buffer((2, 2, 64, 16), name, True) for name in ("q", "k", "v", "y"))
    ids, seen = made.buffer((2, 64), "ids", True, i32), made.buffer((2, 64, 64), "seen", type_=bool_)
    scores, shares = made.buffer((2, 2, 64, 64), "scores"), made.buffer((2, 2, 64, 64), "shares")
    loops, at = {"b": 2, "h": 2, "i": 64, "j": 64}, ("b", "h", "i", "j")
    every = {**loops, "d": 16}
    made.call("seen", [ids], seen, {d: loops[d] for d in "bij"}, tuple("bij"), load(0, *"bi").eq(load(0, *"bj")))
    made.call("scores", [q, k], scores, every, at, load(0, *"bhid") * load(1, *"bhjd"), "add")
    made.call("mask", [scores, seen], shares, loops, at, select(load(1, *"bij"), load(0, *at), 0.0))
    made.call("mix", [shares, v], y, every, tuple("bhid"), load(0, *at) * load(1, *"bhjd"), "add")
    return made


def token_norm(samples: int = 4, tokens: int = 64, width: int = 4096) -> Calls:
    """A norm of every token's features and a residual; then what its scale gets of a gradient, summed over tokens."""
    made = Calls()
    shape, rows = (samples, tokens, width), (samples, tokens)
    x, scale = made.buffer(shape, "x", True), made.buffer((width,), "scale", True)
    y, grad = made.buffer(shape, "y", True), made.buffer((width,), "grad", True)
    mean, centred = made.buffer(rows, "mean"), made.buffer(shape, "centred")
    power, unit = made.buffer(rows, "power"), made.buffer(shape, "unit")
    loops, at, row = {"b": samples, "t": tokens, "c": width}, ("b", "t", "c"), ("b", "t")
    made.call("mean", [x], mean, loops, row, load(0, *at) * (1 / width), "add")
    made.call("centre", [x, mean], centred, loops, at, load(0, *at) - load(1, *row))
    made.call("power", [centred], power, loops, row, load(0, *at) * load(0, *at), "add")
    value = load(0, *at) * apply("rsqrt", load(1, *row) * (1 / width) + 1e-5)
    made.call("unit", [centred, power], unit, loops, at, value)
    made.call("residual", [x, unit, scale], y, loops, at, load(0, *at) + load(1, *at) * load(2, "c"))
    made.call("grad", [y, unit], grad, loops, ("c",), load(0, *at) * load(1, *at), "add")
    return made


def half_histogram() -> Calls:
    """A sum of 16-bit elements into few places, onto a start value, with a loop of one point."""
    made = Calls()
    x, y = made.buffer((1, 40), "x", True, f16), made.buffer((8,), "y", True, f16)
    made.call("fold", [x], y, {"b": 1, "i": 8, "k": 5}, (affine(("i", 1), ("k", 1), const=-2),),
              load(0, "b", affine(("i", 5), "k")), "add")  # fmt: skip
    return made


def large_map() -> Calls:
    """An array and its squares, of 64 MiB each, more than most caches hold; the first row of squares is used again."""
    made = Calls()
    x, y = made.buffer((8192, 2048), "x", True), made.buffer((8192, 2048), "y", True)
    row = made.buffer((2048,), "row", True)
    made.call("square", [x], y, {"r": 8192, "c": 2048}, ("r", "c"), load(0, "r", "c") * load(0, "r", "c"))
    made.call("row", [y], row, {"c": 2048}, ("c",), load(0, 0, "c") + 1.0)
    return made


PROGRAMS = {
    made.__name__: made
    for made in (
        training_step,
        samples_in_blocks,
        outputs_in_groups,
        grains,
        convolution,
        long_product,
        narrow_gradient,
        softmax,
        attention,
        causal_shares,
        packed_shares,
        token_norm,
        half_histogram,
        large_map,
    )
}
