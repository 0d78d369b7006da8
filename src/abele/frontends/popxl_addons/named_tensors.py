"""Trees of tensors and of their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from abele.arrays import Array
from abele.frontends.popxl import Tensor
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl_addons.dot_tree import DotTree


class NamedTensors(DotTree[Tensor]):
    """Tensors by name, as a graph takes its arguments."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, sorted by name."""
        return tuple(self.to_dict().values())

    @property
    def named_tensors(self) -> dict[str, Tensor]:
        """All tensors by their names."""
        return self.to_dict()

    def remap(self, mapping: Mapping[Tensor, Tensor]) -> Self:
        """The tree with other tensors of the same names.

        Args:
            mapping: For each tensor of the tree the other one.

        Raises:
            GraphArgumentError: A tensor of the tree is not in ``mapping``.
        """
        missing = [name for name, tensor in self.to_dict().items() if tensor not in mapping]
        if missing:
            raise GraphArgumentError(
                f"the mapping has no tensor for {', '.join(missing)}", remedy="filter_keys the names that it has"
            )
        return type(self).from_dict({name: mapping[tensor] for name, tensor in self.to_dict().items()})


class NamedTensorData(DotTree[Array]):
    """Arrays by the names of tensors."""


__all__ = ["NamedTensorData", "NamedTensors"]
