"""Tensors after each other: views of several views along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from abele.errors import TensorError, TypeMismatchError
from abele.graph.content import Content
from abele.graph.expect import expect
from abele.graph.join import joined

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

View = TypeVar("View", bound="Tensor")


class Concatenation:
    """Concatenation without content so far.

    Joining contents costs time for every part. A program that appends a thousand rows one by one would join the first
    of them a thousand times; so the parts are only noted, and joined in one go when the content is first asked for.

    Attributes:
        dim: The dimension that grows.
        parts: The views, in order.
    """

    __slots__ = ("dim", "parts")

    def __init__(self, dim: int, parts: tuple[Tensor, ...]) -> None:
        self.dim = dim
        self.parts = parts

    def resolved(self) -> Content:
        """The content; concatenations inside it along the same dimension are joined in the same go."""
        parts: list[tuple[Content, tuple[int, ...]]] = []
        left = list(reversed(self.parts))
        while left:
            tensor = left.pop()
            inner = tensor.unresolved
            if isinstance(inner, Concatenation):
                left.extend(reversed(inner.parts))
            else:
                parts.append((inner, tensor.shape))
        return joined(parts, self.dim)


def concat(tensors: Sequence[View], dim: int = 0) -> View:
    """The view of several tensors after each other along ``dim``.

    Raises:
        TensorError: None is given, or shapes differ elsewhere than along ``dim``.
        TypeMismatchError: Element types differ.
    """
    from abele.graph.tensor import Tensor

    if not tensors:
        raise TensorError("nothing to concatenate")
    for t in tensors:
        expect(t, Tensor, "concat takes tensors")
    first = tensors[0]
    dim = first.checked_dim(dim)
    shape, extent = first.shape, 0
    for t in tensors:
        if t.dtype != first.dtype:
            raise TypeMismatchError(f"cannot concatenate {first!r} and {t!r}: the element types differ")
        own = t.shape
        if len(own) != len(shape) or own[:dim] != shape[:dim] or own[dim + 1 :] != shape[dim + 1 :]:
            raise TensorError(f"cannot concatenate {first!r} and {t!r} along dimension {dim}: the shapes differ")
        inner = t.unresolved
        if isinstance(inner, Concatenation) and inner.dim != dim:
            t.content  # noqa: B018 - resolved now: only concatenations along one dimension are joined in one go
        extent += own[dim]
    if len(tensors) == 1:
        return first
    return first.view((*shape[:dim], extent, *shape[dim + 1 :]), Concatenation(dim, tuple(tensors)))


def stack(tensors: Sequence[View], dim: int = 0) -> View:
    """The view of several tensors of one shape along a new dimension."""
    return concat([t.expand_dims(dim) for t in tensors], dim)
