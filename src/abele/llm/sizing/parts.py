"""Parts of a language model as one IPU of a group runs them: some of its layers, or what is around them.

A group of t IPUs splits every layer as Megatron-LM does. Each IPU has heads / t heads and wide / t features, and the
products that leave them (``out`` and ``down``) are summed over the group. It has vocabulary / t rows of the embedding
and of the head. Llama-2 70B over 16 IPUs: 4 heads of queries and 1 of the 8 heads of keys, which two IPUs hold each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from abele.errors import InvalidOptionError
from abele.frontends.poptorch.functions.quantised import QuantisedLinear
from abele.frontends.poptorch.functions.split_layers import gather_from_group, reduce_from_group, together
from abele.llm.cache import Attending, PagedCache, WholeSequence
from abele.llm.config import LlamaConfig, ModelConfig, NeoXConfig
from abele.llm.models.causal import CausalModel
from abele.llm.models.llama import Llama
from abele.llm.models.neox import NeoX
from abele.llm.models.parts import join_products
from abele.llm.sizing.formats import is_quantised, kind_of
from abele.llm.sizing.measure import ModelPart

PAGE = 16
"""Positions per page of the cache."""
_SUMMED = ("out", "down")
"""Names of the products that read an IPU's share of heads or features."""


def share_of(config: ModelConfig, group: int) -> ModelConfig:
    """The sizes of each IPU's share of a model.

    Args:
        config: The model.
        group: IPUs that compute it together.

    Raises:
        InvalidOptionError: Heads or features that do not divide.
    """
    for name, count in (("heads", config.heads), ("features inside the feed-forward part", config.wide)):
        if count % group:
            raise InvalidOptionError(
                f"{count:,} {name} cannot be split over {group} IPUs",
                because="each has equally many",
                remedy=f"a group of {math.gcd(count, group)}",
            )
    if config.kv_heads % group and group % config.kv_heads:
        raise InvalidOptionError(
            f"{config.kv_heads} heads of keys cannot be split over {group} IPUs",
            because="they divide into neither each other",
        )
    return replace(
        config,
        heads=config.heads // group,
        kv_heads=max(1, config.kv_heads // group),
        wide=config.wide // group,
        vocabulary=-(-config.vocabulary // group),
    )


def model_of(config: ModelConfig) -> CausalModel:
    """The module of a configuration.

    Raises:
        InvalidOptionError: No decoder has such a configuration.
    """
    if type(config) is LlamaConfig:
        return Llama(config)
    if type(config) is NeoXConfig:
        return NeoX(config)
    raise InvalidOptionError(
        f"{type(config).__name__} cannot be sized",
        because="decoders whose layers are alike can be: Llama and NeoX",
    )


class SummedProduct(nn.Module):
    """A product that reads an IPU's share of features; results are summed over the group."""

    def __init__(self, product: nn.Module, group: int) -> None:
        super().__init__()
        self.product, self.group = product, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over the group."""
        return reduce_from_group(self.product(x), self.group)


class SharedEmbedding(nn.Module):
    """Rows of an embedding that the IPUs of a group have shares of."""

    def __init__(self, table: nn.Embedding, entries: int, group: int) -> None:
        super().__init__()
        self.weight, self.entries, self.group = table.weight, entries, group

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of ``tokens``, which all IPUs have."""
        if not together(self.group):
            return nn.functional.embedding(tokens, self.weight)
        rows: torch.Tensor = torch.ops.abele.vocabulary_embedding(self.weight, tokens, self.entries, self.group)
        return rows


class _ModelStep(nn.Module):
    """Base of what one run does with a model and its cache.

    Args:
        config: The whole model.
        group: IPUs that compute it together.
        layers: Layers that the part has.
        cached: Positions of the cache of each sequence; 0 for none, where tokens attend to each other.
        batch: Sequences.
        dtype: Type of activations and of the cache.
        format: Number format of the weights of products.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        group: int,
        layers: int,
        cached: int,
        batch: int,
        dtype: torch.dtype,
        format: str = "f16",
    ) -> None:
        super().__init__()
        share, self.group = replace(share_of(config, group), layers=max(layers, 1)), group
        with torch.device("meta"):
            model = model_of(share).to(dtype)
            self.cache = _cache(share, batch, cached, dtype) if cached and layers else None
        if isinstance(model, Llama | NeoX):  # Its tables are numbers, no weights.
            model.rotary = type(model.rotary)(model.rotary.config, share.head_size, share.positions)
        if not layers:
            model.layers = nn.ModuleList()
        join_products(model)
        if is_quantised(format):
            _quantise(model, format)
        if group > 1:
            _sum_over(model, group)
        self.model = model

    def view(self, x: torch.Tensor, table: torch.Tensor, first: torch.Tensor) -> Attending:
        """Keys and values of new tokens [B, T]."""
        return WholeSequence(x) if self.cache is None else self.cache.view(table, first, x.shape[1])


def _cache(config: ModelConfig, batch: int, positions: int, dtype: torch.dtype) -> PagedCache:
    return PagedCache.of(config, pages=1 + batch * -(-positions // PAGE), page=PAGE, dtype=dtype)


def _sum_over(model: nn.Module, group: int) -> None:
    for owner in list(model.modules()):
        for name, product in list(owner.named_children()):
            if name in _SUMMED and not isinstance(owner, SummedProduct):
                setattr(owner, name, SummedProduct(product, group))


def _quantise(model: CausalModel, format: str) -> None:
    """Put quantised products in the places of the layers' products; embedding and head stay as they are."""
    kind, size = kind_of(format)
    for owner in list(model.layers.modules()):
        for name, product in list(owner.named_children()):
            if type(product) is nn.Linear:
                features = product.in_features, product.out_features
                with torch.device("meta"):
                    made = QuantisedLinear(*features, product.bias is not None, kind=kind, group=size)
                if made.bias is not None:
                    made.bias = product.bias
                setattr(owner, name, made)


class LayersStep(_ModelStep):
    """Some layers, from residual stream to residual stream."""

    def __init__(self, config: ModelConfig, **how: Any) -> None:
        super().__init__(config, **how)
        self.model.embedding, self.model.norm = nn.Identity(), nn.Identity()
        self.model.unembedding = nn.Identity()

    def forward(self, x: torch.Tensor, table: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """The residual stream [B, T, hidden] behind the layers."""
        tokens = x[..., 0]
        return self.model.blocks(x, self.view(tokens, table, first))


class EndsStep(_ModelStep):
    """Embedding and head around no layers: from tokens to the likeliest next token of each sequence.

    Args:
        config: The whole model.
        to_host: True if the host gets logits and chooses; otherwise the IPUs choose the likeliest.
        how: As of the layers.
    """

    def __init__(self, config: ModelConfig, *, to_host: bool = False, **how: Any) -> None:
        super().__init__(config, layers=0, **how)
        self.to_host = to_host
        if self.group > 1:
            table = self.model.embedding
            assert isinstance(table, nn.Embedding)
            self.model.embedding = SharedEmbedding(table, config.vocabulary, self.group)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens i32[B], or logits [B, the IPU's share of the vocabulary]."""
        hidden = self.model.blocks(tokens, WholeSequence(tokens))
        logits = self.model.head(hidden[:, -1])
        if self.to_host:
            return logits
        best, where = logits.max(-1, keepdim=True)
        if self.group > 1:
            best, where = (gather_from_group(part, -1, self.group) for part in (best, where.int()))
            rank = best.argmax(-1, keepdim=True)
            where = where.gather(-1, rank) + rank.int() * logits.shape[-1]
        return where[:, 0].int()


def layers_part(
    config: ModelConfig, layers: int, *, tokens: int, streamed: bool = False, dtype: torch.dtype, **how: Any
) -> ModelPart:
    """Some layers that take ``tokens`` new tokens of each sequence.

    Args:
        config: The whole model.
        layers: Layers of it.
        tokens: New tokens of each sequence.
        streamed: True if weights come from streaming memory.
        dtype: Type of activations.
        how: ``group``, ``cached`` and ``batch``, as :class:`LayersStep` takes them.
    """
    batch, cached = how["batch"], how["cached"]
    step = LayersStep(config, layers=layers, dtype=dtype, **how)
    x = torch.zeros(batch, tokens, config.hidden, dtype=dtype)
    table = torch.zeros(batch, max(1, -(-cached // PAGE)), dtype=torch.int32)
    return ModelPart(step, (x, table, torch.zeros(batch, dtype=torch.int32)), streamed)


def ends_part(
    config: ModelConfig, *, tokens: int, streamed: bool = False, dtype: torch.dtype, to_host: bool = False, **how: Any
) -> ModelPart:
    """Embedding and head; arguments as of :func:`layers_part`."""
    step = EndsStep(config, to_host=to_host, dtype=dtype, **how)
    return ModelPart(step, (torch.zeros(how["batch"], tokens, dtype=torch.int32),), streamed)
