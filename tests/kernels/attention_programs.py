"""Attention in the planner's terms: two batched products with rows of shares between them, and the gradients of all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from random_programs import Maker, Tensor

from abele.kernels.nest.ir import Const, Index, Random, affine, apply, load, nest, select, store
from abele.numerics import ElementType, bool_, f32, u32


@dataclass(frozen=True)
class Sizes:
    """Extents of an attention; ``groups`` of query heads share keys and values."""

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int

    @property
    def loops(self) -> dict[str, int]:
        return {"b": self.batch, "h": self.heads, "i": self.queries, "j": self.keys}


class AttentionMaker(Maker):
    """Attention over buffers in odd layouts.

    ``mask`` is ``none``, ``added`` (an array), ``causal`` (by index), ``far`` (the same with a large number in place of
    minus infinity) or ``window`` (a constant that leaves a band along the diagonal). Others are made from numbers of
    sequences (``ids``), which only the caller knows: ``packed`` (truth values: equal numbers), ``others`` (unequal
    ones), ``padded`` (of keys alone: number 0), ``packed added`` (0 or minus infinity), ``packed far`` (0 or -1000).
    """

    def __init__(
        self, seed: int, sizes: Sizes, mask: str = "none", type_: ElementType = f32, ids: np.ndarray | None = None
    ) -> None:
        super().__init__(seed, sizes.batch)
        self.type, self.sizes, self.mask, self.ids, self.dropout = type_, sizes, mask, ids, False

    def own(self, *shape: int) -> Tensor:
        return self.tensor(shape, pinned=False)

    def truths(self, *shape: int) -> Tensor:
        made = self.own(*shape)
        made.buffer = replace(made.buffer, type=bool_)
        return made

    def given(self, values: np.ndarray) -> Tensor:
        """Tensor that the caller hands in."""
        made = self.source(values.shape)
        held = self.start[made.buffer.id].reshape(-1)
        places = made.read(np.arange(held.size))
        held[places] = values
        made.value = values.astype(np.float32)
        return made

    def numbered(self) -> tuple[Tensor, Tensor]:
        """Numbers of the sequences of queries and of keys: every query sees some key."""
        s = self.sizes
        ids = self.ids
        if ids is None:
            ids = np.sort(self.rng.integers(0, 4, (s.batch, s.keys)), axis=1)
        ids = np.broadcast_to(ids, (s.batch, s.keys)).astype(np.float32)
        places = np.arange(s.queries) * s.keys // s.queries
        return self.given(ids[:, places]), self.given(ids)

    def constant(self, values: np.ndarray) -> Tensor:
        made = self.source(values.shape)
        held = self.start[made.buffer.id]
        held.reshape(-1)[made.read(np.arange(held.size))] = values
        made.value, made.buffer = values.astype(np.float32), replace(made.buffer, elements=held)
        return made

    def product(self, name: str, a: Tensor, b: Tensor, out: Tensor, index: str, left: str, right: str) -> Tensor:
        """``out[index] += a[left] * b[right]`` over all dims that these mention."""
        extents = {**self.sizes.loops, "d": self.sizes.depth}
        loops = {d: extents[d] for d in dict.fromkeys(index + left + right)}
        value = load(0, *left) * load(1, *right)
        return self.call(name, [a, b], out, nest(loops, store(2, tuple(index), value, "add")))

    def forward(self) -> Tensor:
        """softmax(q · kᵀ · scale + mask) · v."""
        s = self.sizes
        self.q, self.k, self.v = (self.source((s.batch, s.heads, n, s.depth)) for n in (s.queries, s.keys, s.keys))
        rows, all_ = (s.batch, s.heads, s.queries), (s.batch, s.heads, s.queries, s.keys)
        scores = self.product("scores", self.q, self.k, self.own(*all_), "bhij", "bhid", "bhjd")
        masked, at = self.masked(scores), ("b", "h", "i", "j")
        top, power, total, self.p = self.own(*rows), self.own(*all_), self.own(*rows), self.own(*all_)
        row = ("b", "h", "i")
        self.call("max", [masked], top, nest(s.loops, store(1, row, load(0, *at), "max")))
        self.call("exp", [masked, top], power, nest(s.loops, store(2, at, apply("exp", load(0, *at) - load(1, *row)))))
        self.call("sum", [power], total, nest(s.loops, store(1, row, load(0, *at), "add")))
        self.call("divide", [power, total], self.p, nest(s.loops, store(2, at, load(0, *at) / load(1, *row))))
        kept = self.dropped(self.p) if self.dropout else self.p
        out = self.tensor((s.batch, s.heads, s.queries, s.depth), pinned=True)
        return self.product("mix", kept, self.v, out, "bhid", "bhij", "bhjd")

    def dropped(self, shares: Tensor) -> Tensor:
        """Shares of which a random half is dropped, and the rest doubled."""
        s, at = self.sizes, ("b", "h", "i", "j")
        seed = self.tensor((2,), pinned=True)
        seed.buffer = replace(seed.buffer, type=u32)
        self.start[seed.buffer.id] = np.array([3, 5], np.uint32)
        seed.value = seed.read(self.start[seed.buffer.id])
        place = affine(("b", s.heads * s.queries * s.keys), ("h", s.queries * s.keys), ("i", s.keys), "j")
        half = select(Random(1, 7, place) <= Const(1 << 31, u32), load(0, *at) * 2.0, 0.0)
        return self.call("dropout", [shares, seed], self.own(*shares.shape), nest(s.loops, store(2, at, half)))

    def masked(self, scores: Tensor) -> Tensor:
        s, at = self.sizes, ("b", "h", "i", "j")
        out, value = self.own(*scores.shape), load(0, *at) * (s.depth**-0.5)
        match self.mask:
            case "added":
                bias = self.source((s.heads, s.queries, s.keys))
                return self.call("bias", [scores, bias], out, nest(s.loops, store(2, at, value + load(1, *"hij"))))
            case "causal" | "far":
                seen = select(Index(affine("j", ("i", -1))) <= 0, value, -math.inf if self.mask == "causal" else -1e9)
                return self.call("causal", [scores], out, nest(s.loops, store(1, at, seen)))
            case "window":
                i, j = np.ogrid[: s.queries, : s.keys]
                band = self.constant(np.where(abs(i * s.keys // s.queries - j) <= s.keys // 6, 0.0, -np.inf))
                return self.call("window", [scores, band], out, nest(s.loops, store(2, at, value + load(1, "i", "j"))))
            case "packed" | "others":
                queries, keys = self.numbered()
                seen, loops = self.truths(s.batch, s.queries, s.keys), {d: s.loops[d] for d in "bij"}
                equal = load(0, "b", "i").eq(load(1, "b", "j"))
                if self.mask == "others":
                    equal = load(0, "b", "i").ne(load(1, "b", "j"))
                self.call("equal", [queries, keys], seen, nest(loops, store(2, tuple("bij"), equal)))
                ends = (value, -math.inf) if self.mask == "packed" else (-math.inf, value)
                return self.call(
                    "packed", [scores, seen], out, nest(s.loops, store(2, at, select(load(1, *"bij"), *ends)))
                )
            case "padded":
                _, keys = self.numbered()
                seen, loops = self.truths(s.batch, s.keys), {d: s.loops[d] for d in "bj"}
                self.call("real", [keys], seen, nest(loops, store(1, ("b", "j"), load(0, "b", "j") > 0.0)))
                return self.call(
                    "padded",
                    [scores, seen],
                    out,
                    nest(s.loops, store(2, at, select(load(1, "b", "j"), value, -math.inf))),
                )
            case "packed added" | "packed far":
                queries, keys = self.numbered()
                added, loops = self.own(s.batch, s.queries, s.keys), {d: s.loops[d] for d in "bij"}
                far = -math.inf if self.mask == "packed added" else -1000.0
                number = select(load(0, "b", "i").eq(load(1, "b", "j")), 0.0, far)
                self.call("numbers", [queries, keys], added, nest(loops, store(2, tuple("bij"), number)))
                return self.call("added", [scores, added], out, nest(s.loops, store(2, at, value + load(1, *"bij"))))
        return self.call("scale", [scores], out, nest(s.loops, store(1, at, value)))

    def backward(self, out: Tensor) -> None:
        """Gradients of the mean square of the result: dv, dq and dk, after a detour through a sum over everything."""
        s, at, row = self.sizes, ("b", "h", "i", "j"), ("b", "h", "i")
        loops, whole = {"b": s.batch, "h": s.heads, "i": s.queries, "d": s.depth}, ("b", "h", "i", "d")
        total, grad = self.own(), self.own(*out.shape)
        self.call("total", [out], total, nest(loops, store(1, (), load(0, *whole) * load(0, *whole) * 0.01, "add")))
        self.call("grad", [out, total], grad, nest(loops, store(2, whole, load(0, *whole) / (load(1) + 1.0))))
        dp, dot, ds = self.own(*self.p.shape), self.own(*self.p.shape[:3]), self.own(*self.p.shape)
        self.product("dp", grad, self.v, dp, "bhij", "bhid", "bhjd")
        both = load(0, *at) * load(1, *at)
        self.call("dot", [self.p, dp], dot, nest(s.loops, store(2, row, both, "add")))
        value = load(0, *at) * (load(1, *at) - load(2, *row)) * (s.depth**-0.5)
        if self.mask in ("causal", "far"):
            value = select(Index(affine("j", ("i", -1))) <= 0, value, 0.0)
        self.call("ds", [self.p, dp, dot], ds, nest(s.loops, store(3, at, value)))
        results = [self.tensor(t.shape, pinned=True) for t in (self.v, self.q, self.k)]
        self.product("dv", self.p, grad, results[0], "bhjd", "bhij", "bhid")
        self.product("dq", ds, self.k, results[1], "bhid", "bhij", "bhjd")
        self.product("dk", ds, self.q, results[2], "bhjd", "bhij", "bhid")


def training(seed: int, sizes: Sizes, mask: str = "none", ids: np.ndarray | None = None) -> AttentionMaker:
    """Attention with all its gradients."""
    maker = AttentionMaker(seed, sizes, mask, ids=ids)
    maker.backward(maker.forward())
    return maker


def inference(
    seed: int, sizes: Sizes, mask: str = "none", type_: ElementType = f32, ids: np.ndarray | None = None
) -> AttentionMaker:
    """Attention alone."""
    maker = AttentionMaker(seed, sizes, mask, type_, ids)
    maker.forward()
    return maker
