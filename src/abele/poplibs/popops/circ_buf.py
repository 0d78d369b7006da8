"""Circular buffer of tensors, for values computed some steps ago."""

from __future__ import annotations

from collections.abc import Iterable

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Graph, Switch, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, u32
from abele.poplibs.popops.elementwise.map import map_in_place, map_with_output
from abele.poplibs.popops.expr import Const, Op, _1
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.words import counted


class CircBuf:
    """``size`` tensors of one shape, of which the oldest is overwritten by the next.

    Every slot lies on all tiles, so that adding and reading copy from tile to tile what does not lie alike.

    Args:
        graph: Graph in which the slots and the index are made.
        dtype: Element type.
        size: Number of slots.
        shape: Shape of a tensor.
        name: Name of the variables.

    Raises:
        TensorError: No slot.
    """

    def __init__(
        self, graph: Graph, dtype: ElementType | str, size: int, shape: Iterable[int], name: str = "circ_buf"
    ) -> None:
        if size < 1:
            raise TensorError(f"{name}: a circular buffer of {counted(size, 'slot')}")
        self.graph = graph
        self.name = name
        self.slots = [
            map_tensor_linearly(graph, graph.variable(dtype, tuple(shape), name=f"{name}/slot{i}")) for i in range(size)
        ]
        self.index = graph.variable(u32, (), name=f"{name}/index", initial=size - 1, map=0)

    @property
    def size(self) -> int:
        """Number of slots."""
        return len(self.slots)

    def get_index(self) -> Tensor:
        """The slot that was filled last, a u32 scalar."""
        return self.index

    def increment_index(self, prog: Sequence, step: int = 1) -> None:
        """Move the index ``step`` slots on."""
        moved = Op("rem", _1 + Const(step % self.size), Const(self.size))
        map_in_place(self.graph, moved, [self.index], prog, f"{self.name}/increment_index")

    def add(self, tensor: Tensor, prog: Sequence) -> None:
        """Move on and keep ``tensor`` in the slot.

        Raises:
            TensorError: Another shape than the slots'.
            TypeMismatchError: Another element type.
        """
        slot = self.slots[0]
        if tensor.shape != slot.shape:
            raise TensorError(f"{self.name}: {tensor!r} has shape {list(tensor.shape)}, slots {list(slot.shape)}")
        if tensor.dtype != slot.dtype:
            raise TypeMismatchError(f"{self.name}: {tensor!r} is {tensor.dtype}, slots are {slot.dtype}")
        self.increment_index(prog)
        prog.add(Switch(self.index, {i: Copy(tensor, s) for i, s in enumerate(self.slots)}))

    def prev(self, steps: int, prog: Sequence) -> Tensor:
        """A new tensor with the value added ``steps`` before the last.

        Raises:
            TensorError: As many steps as there are slots, or a negative number.
        """
        if not 0 <= steps < self.size:
            raise TensorError(f"{self.name}: {counted(steps, 'step')} back in {counted(self.size, 'slot')}")
        out = map_tensor_linearly(
            self.graph, self.graph.variable(self.slots[0].dtype, self.slots[0].shape, name=f"{self.name}/prev")
        )
        at = self.graph.variable(u32, (), name=f"{self.name}/at", map=0)
        back = Op("rem", _1 + Const(self.size - steps), Const(self.size))
        map_with_output(self.graph, back, [self.index], at, prog, f"{self.name}/prev_index")
        prog.add(Switch(at, {i: Copy(s, out) for i, s in enumerate(self.slots)}))
        return out
