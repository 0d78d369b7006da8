"""The vertices of pooling: each makes a block of its output, whose rows the workers of a tile share.

How many loops a vertex has follows from the rank of the field, so its code is written a statement at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from abele.codelet import Input, Output, Vector
from abele.codelet.write import CodeWriter, WrittenValue
from abele.codelet.written import written_codelet
from abele.numerics import ElementType, bf16, f16, f32, i32
from abele.poplibs.popnn.pool_costs import PoolWork

PoolStep = Literal["max", "avg", "sum", "ties", "places"]
GradientStep = Literal["max", "avg", "sum", "first"]

Window = tuple[tuple[int, ...], tuple[int, ...]]
"""Window and stride along every field dimension."""
WHOLE_NUMBERS = {f32: 2**24, f16: 2**11, bf16: 2**8}
"""Up to here a type has every whole number."""
_INPUT: Any = Input
_OUTPUT: Any = Output
_VECTOR: Any = Vector


@lru_cache(maxsize=256)
def pool_codelet(step: PoolStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of a pooled field.

    ``ties`` counts the elements of each window that equal its maximum ``pooled``, and ``places`` gives the number in
    the window of the first that does; of NaN, which equal nothing, that of the last.

    Fields: ``x`` holds the box of the input that the windows cover, [groups, batch, *in, channels], and ``y`` the
    outputs, [groups, batch, *out, channels]; ``first_d`` is where the first window starts in the box (below 0: in the
    padding). The workers share the positions of batch and field evenly; each makes all channels of its own.
    """
    compares = step in ("ties", "places")
    work = PoolWork(*window, dtype, compares=compares, is_gradient=False)
    made = place_type(dtype, window[0]) if step == "places" else dtype
    code = _Pooling({"x": dtype} | ({"pooled": dtype} if compares else {}), made, window, workers)
    none = float(math.prod(window[0]))

    def one_position() -> None:
        total = code.local("total")
        if step == "max":
            code.let("total", code.call("max", total, code.local("e")))
        elif step == "ties":
            with code.when(code.local("e").compare("==", code.local("best"))):
                code.let("total", total + 1.0)
        elif step == "places":
            is_best = code.local("e").compare("==", code.local("best"))
            with code.when(is_best.both(total.compare("==", none))):
                code.let("total", code.number_in_window().converted(f32))
            with code.when(code.local("e").compare("!=", code.local("e"))):
                code.let("total", code.number_in_window().converted(f32))
        else:
            code.let("total", total + code.local("e"))

    def one_element() -> None:
        if compares:
            code.let("best", code.element("pooled", code.place()).converted(f32))
        start = {"max": -math.inf, "places": none}.get(step, 0.0)
        code.let("total", code.number(start).converted(f32))
        with code.window():
            code.let("e", code.element("x", code.read()).converted(f32))
            one_position()
        if step == "avg":
            with code.when(code.local("count").compare(">", 1)):
                code.let("total", code.local("total") / code.local("count").converted(f32))
        if step == "max":  # a window of nothing but padding gives 0
            with code.when(code.local("count").compare("<", 1)):
                code.let("total", code.number(0.0).converted(f32))
        code.store("y", code.local("total").converted(made), code.place())

    code.walk(_window_bounds, counts=True, each=one_element)
    return written_codelet(f"Pool_{step}", code, work.vertex_cycles, (dtype, window), work.vertex_state_bytes)


def place_type(dtype: ElementType, kernel: tuple[int, ...]) -> ElementType:
    """The type of numbers in a window of ``kernel``: that of the elements, if it has every number and one more."""
    return dtype if math.prod(kernel) <= WHOLE_NUMBERS[dtype] else f32


@lru_cache(maxsize=256)
def pool_gradient_codelet(step: GradientStep, dtype: ElementType, window: Window, workers: int) -> type:
    """A block of the input gradient.

    Fields: ``g`` holds the box of output gradients whose windows cover the block, for ``max`` ``pooled`` the outputs
    there and ``x`` the inputs of the block, for ``first`` ``places`` the numbers of the elements that get them;
    ``first_d`` is the first position of the block, counted from the padding, less the stride times the first output of
    the box; ``scale`` multiplies every result.
    """
    work = PoolWork(*window, dtype, compares=step in ("max", "first"), is_gradient=True)
    more = {"max": {"pooled": dtype, "x": dtype}, "first": {"places": place_type(dtype, window[0])}}
    code = _Pooling({"g": dtype, **more.get(step, {})}, dtype, window, workers, {"scale": f32})

    def one_element() -> None:
        code.let("total", code.number(0.0).converted(f32))
        if step == "max":
            code.let("x", code.element("x", code.place()))
        with code.window(), ExitStack() as inside:
            if step == "max":
                inside.enter_context(code.when(code.element("pooled", code.read()).compare("==", code.local("x"))))
            elif step == "first":
                place = code.element("places", code.read()).converted(f32)
                inside.enter_context(code.when(place.compare("==", code.number_under_window().converted(f32))))
            code.let("total", code.local("total") + code.element("g", code.read()).converted(f32))
        code.store("y", (code.local("total") * code.scalar("scale")).converted(dtype), code.place())

    code.walk(_cover_bounds, counts=False, each=one_element)
    return written_codelet(f"PoolGradient_{step}", code, work.vertex_cycles, (dtype, window), work.vertex_state_bytes)


class _Pooling(CodeWriter):
    """Code of a vertex over a field of any rank."""

    def __init__(
        self,
        reads: Mapping[str, ElementType],
        made: ElementType,
        window: Window,
        workers: int,
        more: Mapping[str, ElementType] = MappingProxyType({}),
    ) -> None:
        self.window_shape, self.stride = window
        self.rank, self.workers = len(self.window_shape), workers
        sizes = [f"{n}_{d}" for d in range(self.rank) for n in ("in", "out", "first")]
        state = dict.fromkeys([*sizes, "groups", "batch", "channels"], i32)
        edges: dict[str, Any] = {name: _INPUT[_VECTOR[type_]] for name, type_ in reads.items()}
        edges["y"] = _OUTPUT[_VECTOR[made]]
        super().__init__("MultiVertex", {**edges, **state, **more})

    def place(self) -> WrittenValue:
        """Index of the output's element."""
        return self.local("place") * self.scalar("channels") + self.local("c")

    def read(self) -> WrittenValue:
        """Index of an element of the box that is read."""
        at = self.local("outer")
        for d in range(self.rank):
            at = at * self.scalar(f"in_{d}") + self.local(f"k{d}")
        return at * self.scalar("channels") + self.local("c")

    def number_in_window(self) -> WrittenValue:
        """Number in its window of the position of the box that loops are at, in row-major order."""
        return self._number([self.local(f"k{d}") - self.local(f"at{d}") for d in range(self.rank)])

    def number_under_window(self) -> WrittenValue:
        """Number of the output's element in the window that loops are at."""
        return self._number([self.local(f"at{d}") - self.local(f"k{d}") * self.stride[d] for d in range(self.rank)])

    def _number(self, along: list[WrittenValue]) -> WrittenValue:
        number = along[0]
        for one, extent in zip(along[1:], self.window_shape[1:], strict=True):
            number = number * extent + one
        return number

    def window(self) -> ExitStack:
        """Loops over the positions of the box that belong to one of the output."""
        loops = ExitStack()
        for d in range(self.rank):
            loops.enter_context(self.loop(f"k{d}", self.local(f"low{d}"), self.local(f"high{d}")))
        return loops

    def walk(self, bounds: Callable[[_Pooling, int], None], *, counts: bool, each: Callable[[], None]) -> None:
        """The loops of a worker over its pieces of rows, over the groups and elements of each."""
        last = self.rank - 1

        def width() -> WrittenValue:
            return self.scalar(f"out_{last}")

        rows = self.scalar("batch")
        for d in range(last):
            rows = rows * self.scalar(f"out_{d}")
        self.let("rows", rows)
        self.let("begin", self.local("worker_id") * (self.local("rows") * width()) // self.workers)
        self.let("end", (self.local("worker_id") + 1) * (self.local("rows") * width()) // self.workers)
        with self.loop("row", self.local("begin") // width(), (self.local("end") + width() - 1) // width()) as row:
            self.let("sample", row)
            for d in reversed(range(last)):
                self.let(f"o{d}", self.local("sample") % self.scalar(f"out_{d}"))
                self.let("sample", self.local("sample") // self.scalar(f"out_{d}"))
            for d in range(last):
                bounds(self, d)
            with self.loop("group", 0, self.scalar("groups")) as group:
                self.let("outer", group * self.scalar("batch") + self.local("sample"))
                self._elements(bounds, width, each, counts=counts)

    def _elements(
        self,
        bounds: Callable[[_Pooling, int], None],
        width: Callable[[], WrittenValue],
        each: Callable[[], None],
        *,
        counts: bool,
    ) -> None:
        """The loops over the positions of a piece of a row, and their channels."""
        first = self.call("max", self.local("begin") - self.local("row") * width(), 0)
        stop = self.call("min", self.local("end") - self.local("row") * width(), width())
        with self.loop("j", first, stop) as j:
            self.let(f"o{self.rank - 1}", j)
            row = self.local("group") * self.local("rows") + self.local("row")
            self.let("place", row * width() + self.local("j"))
            bounds(self, self.rank - 1)
            if counts:
                self.let("count", 1)
                for d in range(self.rank):
                    inside = self.call("max", self.local(f"high{d}") - self.local(f"low{d}"), 0)
                    self.let("count", self.local("count") * inside)
            with self.loop("c", 0, self.scalar("channels")):
                each()


def _window_bounds(code: _Pooling, d: int) -> None:
    """Positions of the box that the window of output o covers."""
    at = code.let(f"at{d}", code.scalar(f"first_{d}") + code.local(f"o{d}") * code.stride[d])
    code.let(f"low{d}", code.call("max", at, 0))
    code.let(f"high{d}", code.call("min", code.local(f"at{d}") + code.window_shape[d], code.scalar(f"in_{d}")))


def _cover_bounds(code: _Pooling, d: int) -> None:
    """Positions of the box whose windows cover the element o."""
    kernel, stride = code.window_shape[d], code.stride[d]
    at = code.let(f"at{d}", code.scalar(f"first_{d}") + code.local(f"o{d}"))
    code.let(f"low{d}", code.call("max", (at - kernel + stride) // stride, 0))
    code.let(f"high{d}", code.call("min", code.local(f"at{d}") // stride + 1, code.scalar(f"in_{d}")))
