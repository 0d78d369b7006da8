"""Shapes with unknown dims, and what is known of a tensor before it is there."""

from __future__ import annotations

from typing import Any

from abele.errors import TensorError

from .dtypes import DType, as_dtype, of_array


class TensorShape(tuple[int | None, ...]):
    """The dims of a tensor, None where one is not known; a tuple, so that JAX and Keras take it.

    Args:
        dims: The dims, or None where not even their number is known.
    """

    rank: int | None

    def __new__(cls, dims: Any = ()) -> TensorShape:
        """Make a shape of dims, of a number of them, or of none that is known."""
        known = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
        made = super().__new__(cls, (None if dim is None or dim == -1 else int(dim) for dim in known))
        made.rank = None if dims is None or getattr(dims, "rank", 0) is None else len(known)
        return made

    @property
    def ndims(self) -> int | None:
        """The number of dims."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The dims as a list."""
        return None if self.rank is None else list(self)

    def as_list(self) -> list[int | None]:
        """The dims as a list.

        Raises:
            TensorError: Their number is not known.
        """
        if self.rank is None:
            raise TensorError("as_list() of a shape of unknown rank")
        return list(self)

    def num_elements(self) -> int | None:
        """The product of the dims, None if one is not known."""
        if not self.is_fully_defined():
            return None
        count = 1
        for dim in self:
            count *= dim or 0
        return count

    def is_fully_defined(self) -> bool:
        """True if every dim is known."""
        return self.rank is not None and None not in self

    def is_compatible_with(self, other: Any) -> bool:
        """True if a tensor could have both shapes."""
        return self.merged(other) is not None

    def merged(self, other: Any) -> TensorShape | None:
        """Shape of a tensor that has both shapes, None if there can be none."""
        theirs = TensorShape(other)
        if self.rank is None or theirs.rank is None:
            return theirs if self.rank is None else self
        if len(self) != len(theirs) or any(
            a is not None and b is not None and a != b for a, b in zip(self, theirs, strict=True)
        ):
            return None
        return TensorShape(a if b is None else b for a, b in zip(self, theirs, strict=True))

    def merge_with(self, other: Any) -> TensorShape:
        """Shape of a tensor that has both shapes.

        Raises:
            TensorError: There can be none.
        """
        merged = self.merged(other)
        if merged is None:
            raise TensorError(f"shapes {self} and {TensorShape(other)} are not compatible")
        return merged

    def assert_is_compatible_with(self, other: Any) -> None:
        """Do nothing if a tensor could have both shapes.

        Raises:
            TensorError: There can be none.
        """
        self.merge_with(other)

    def concatenate(self, other: Any) -> TensorShape:
        """The dims of both, one after the other."""
        return TensorShape((*self, *TensorShape(other)))

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape) and (self.rank is None or other.rank is None):
            return self.rank is other.rank
        return tuple(self) == (tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"TensorShape({'None' if self.rank is None else list(self)})"

    def __str__(self) -> str:
        return "<unknown>" if self.rank is None else f"({', '.join(map(str, self))}{',' * (len(self) == 1)})"


class TypeSpec:
    """Knowledge of a value before it is there."""


class TensorSpec(TypeSpec):
    """Knowledge of a tensor before it is there.

    Args:
        shape: Its dims; None where one, or their number, is not known.
        dtype: Its element type.
        name: Its name.
    """

    def __init__(self, shape: Any = None, dtype: Any = "float32", name: str | None = None) -> None:
        self.shape = TensorShape(shape)
        self.dtype = as_dtype(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """Spec of a tensor."""
        return cls(tensor.shape, of_array(tensor), name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """The same, under another name."""
        return cls(spec.shape, spec.dtype, name or getattr(spec, "name", None))

    def is_compatible_with(self, other: Any) -> bool:
        """True if the tensor, or one of another spec, can be of this one."""
        dtype = other.dtype if isinstance(other.dtype, DType) else of_array(other)
        return dtype == self.dtype and self.shape.is_compatible_with(other.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.name == other.name
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"
