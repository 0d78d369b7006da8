"""Sizes of a model in files, told from headers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from abele.llm.config import ModelConfig
from abele.llm.loading.sources import source_of


@dataclass(frozen=True)
class ModelDescription:
    """Sizes of a model in files.

    Attributes:
        family: Type of model, as the files call it.
        config: Its sizes and variants.
        parameters: Numbers in all tensors.
        bytes_by_kind: Bytes of tensors as stored, by kind.
    """

    family: str
    config: ModelConfig
    parameters: int
    bytes_by_kind: Mapping[str, int]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(self.bytes_by_kind.values())

    def weight_bytes(self, element_bytes: int = 4) -> int:
        """Bytes of all numbers in a type of so many bytes."""
        return self.parameters * element_bytes

    def cache_bytes_per_token(self, element_bytes: int = 2) -> int:
        """Bytes of keys and values that one position of one sequence takes."""
        config = self.config
        return 2 * config.cached_layers * config.kv_heads * config.head_size * element_bytes

    def __str__(self) -> str:
        config = self.config
        kinds = " · ".join(f"{kind} {held:,} B" for kind, held in self.bytes_by_kind.items())
        return "\n".join(
            [
                f"{self.family}: {self.parameters:,} parameters, {config.layers} layers, width {config.hidden}",
                f"  stored   {self.stored_bytes:,} B ({kinds})",
                f"  weights  f32 {self.weight_bytes(4):,} B, f16 {self.weight_bytes(2):,} B",
                f"  cache    f32 {self.cache_bytes_per_token(4):,} B per token, f16 "
                f"{self.cache_bytes_per_token(2):,} B; {config.positions:,} positions at most",
            ]
        )


def describe(path: str | Path) -> ModelDescription:
    """Sizes of a model at a path.

    Raises:
        FileFormatError: Files are missing or damaged.
        ModelConfigError: The model is of a kind that no module has.
    """
    source = source_of(path)
    parameters = sum(tensor.num_elements for tensor in source.weights.values())
    return ModelDescription(source.family, source.config, parameters, source.weights.bytes_by_kind)
