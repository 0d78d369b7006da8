"""NumPy's broadcasting rules on the shapes of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import TensorError
from abele.graph import Tensor

Shape = tuple[int, ...]


def broadcast_shape(op: str, shapes: Sequence[Shape]) -> Shape:
    """The shape that operands of ``shapes`` broadcast to.

    Args:
        op: Name of the operation, for the error.
        shapes: One shape per operand.

    Raises:
        TensorError: Two extents differ and neither is 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    # Also an extent of 0 wins over 1, as NumPy has it.
    result = tuple(next((e for e in extents if e != 1), 1) for extents in zip(*padded, strict=True))
    for operand, shape in enumerate(padded):
        for dim, (have, want) in enumerate(zip(shape, result, strict=True)):
            if have not in (1, want):
                listed = " and ".join(str(list(s)) for s in shapes)
                raise TensorError(
                    f"{op}: operands of shapes {listed} do not broadcast",
                    because=f"operand {operand} has {have} along dimension {dim}, another has {want}",
                    remedy="extents must be equal or 1, aligned at the last dimension",
                )
    return result


def broadcast_to_match(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of all ``tensors`` in the shape that they broadcast to.

    Raises:
        TensorError: The shapes do not broadcast.
    """
    shape = broadcast_shape("broadcast_to_match", [t.shape for t in tensors])
    return tuple(t.broadcast_to(shape) for t in tensors)


def broadcast_dims(shape: Shape, target: Shape) -> tuple[bool, ...]:
    """For each dimension of ``target``, True if an operand of ``shape`` is repeated along it."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    return tuple(have == 1 and want != 1 for have, want in zip(padded, target, strict=True))


def can_broadcast_to_match(one: Tensor, other: Tensor) -> bool:
    """True if the two shapes broadcast to one."""
    try:
        broadcast_shape("can_broadcast_to_match", [one.shape, other.shape])
    except TensorError:
        return False
    return True


def expand_to_match_ranks(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Views of both with as many dimensions: that of the lower rank has dimensions of 1 in front."""
    rank = max(one.ndim, other.ndim)
    first, second = (t.reshape(((1,) * (rank - t.ndim)) + tuple(t.shape)) for t in (one, other))
    return first, second
