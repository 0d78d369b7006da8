"""T5 and Flan-T5: an encoder, and a decoder that attends to what it made.

Positions are known from biases of distances alone. Keys and values of the encoder's output are written once per text,
into a :class:`CrossCache`; a step of the decoder then reads them and writes nothing but its own position.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from abele.llm.cache import PagedCache, PagedView, WholeSequence
from abele.llm.config import T5Config
from abele.llm.models.parts import FeedForward, GatedFeedForward, Projections


class CrossCache(nn.Module):
    """Keys and values of encoded texts, one slot per text.

    Args:
        config: Sizes of the model.
        slots: Texts.
        length: Tokens of the longest text.
        dtype: Type of keys and values.
    """

    lengths: torch.Tensor

    def __init__(self, config: T5Config, *, slots: int, length: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.length = length
        for i in range(config.cached_layers):
            for name in ("keys", "values"):
                made = torch.zeros(slots, length, config.heads, config.head_size, dtype=dtype)
                self.register_buffer(f"{name}{i}", made)
        self.register_buffer("lengths", torch.zeros(slots, dtype=torch.int32))

    def tables(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, [slots, length, heads, head_size] each."""
        return self.get_buffer(f"keys{layer}"), self.get_buffer(f"values{layer}")

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Keys and values [B, length, heads, head_size] put into slots [B]."""
        for table, new in zip(self.tables(layer), (k, v), strict=True):
            table.index_copy_(0, slots.long(), new.to(table.dtype))


class DistanceBias(nn.Module):
    """A bias per head for each distance between a query and a key; far distances share buckets.

    Args:
        config: Number of buckets, and the distance from which on all share the last.
        both_ways: True where queries see later keys too.
    """

    def __init__(self, config: T5Config, *, both_ways: bool) -> None:
        super().__init__()
        self.config, self.both_ways = config, both_ways
        self.biases = nn.Embedding(config.buckets, config.heads)

    def buckets(self, distance: torch.Tensor) -> torch.Tensor:
        """Buckets of distances, key's position minus query's.

        Half of the buckets are for one distance each; the others grow geometrically up to ``far``.
        """
        count = self.config.buckets
        start = torch.zeros_like(distance)
        if self.both_ways:
            count //= 2
            start = torch.where(distance > 0, count, start)
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        near = count // 2
        growth = (count - near) / math.log(self.config.far / near)
        far = near + (torch.log(distance.clamp(min=1).float() / near) * growth).to(distance.dtype)
        return start + torch.where(distance < near, distance, far.clamp(max=count - 1))

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Biases [B, heads, T, S] of queries at positions [B, T] and keys at positions [S]."""
        biases: torch.Tensor = self.biases(self.buckets(keys - queries[..., None]))
        return biases.permute(0, 3, 1, 2)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Attention of q [B, T, H, d] to k, v [B, S, H, d] without a scale; ``bias`` [B, H or 1, T, S] has the mask."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.transpose(-1, -2)).float() + bias
    return (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2)


def masked(seen: torch.Tensor) -> torch.Tensor:
    """Bias that hides what is not seen."""
    return torch.where(seen, 0.0, -1e30)


class T5Part(nn.Module):
    """A norm, attention, and the residual stream around them."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.attention = Projections(config, query_bias=False, out_bias=False)


class T5Block(nn.Module):
    """Self-attention, in the decoder attention to the text, and a feed-forward part.

    Args:
        config: Sizes and variants.
        layer: Number of the block.
        decoder: True for a block of the decoder.
    """

    def __init__(self, config: T5Config, layer: int, *, decoder: bool) -> None:
        super().__init__()
        self.layer = layer
        self.own = T5Part(config)
        if decoder:
            self.cross = T5Part(config)
            self.cross.attention.apart = True  # queries read the decoder's stream, keys and values the text
        self.wide_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.wide = GatedFeedForward(config, bias=False) if config.gated else FeedForward(config, bias=False)

    def encode(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The residual stream [B, S, hidden] after a block of the encoder."""
        part = self.own
        x = x + part.attention.output(attention(*part.attention.projected(part.norm(x)), bias))
        out: torch.Tensor = x + self.wide(self.wide_norm(x))
        return out

    def decode(
        self,
        x: torch.Tensor,
        cache: PagedView | WholeSequence,
        text: tuple[torch.Tensor, torch.Tensor],
        biases: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """The residual stream [B, T, hidden] after a block of the decoder.

        Args:
            x: The residual stream before it.
            cache: The decoder's own keys and values.
            text: Keys and values of the text, [B, S, heads, d] each.
            biases: Biases of the decoder's own positions and of the text's.
        """
        own, cross = self.own, self.cross
        q, k, v = own.attention.projected(own.norm(x))
        x = x + own.attention.output(attention(q, *cache.gathered(self.layer, k, v), biases[0]))
        q = cross.attention.query(cross.norm(x)).unflatten(-1, (-1, cross.attention.head_size))
        x = x + cross.attention.output(attention(q, *text, biases[1]))
        out: torch.Tensor = x + self.wide(self.wide_norm(x))
        return out


class T5(nn.Module):
    """An encoder and a decoder.

    Args:
        config: Sizes and variants.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.encoder_bias = DistanceBias(config, both_ways=True)
        self.encoder = nn.ModuleList(T5Block(config, i, decoder=False) for i in range(config.layers))
        self.encoder_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.decoder_bias = DistanceBias(config, both_ways=False)
        self.layers = nn.ModuleList(T5Block(config, i, decoder=True) for i in range(config.cached_layers))
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.unembedding = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied_head:
            self.unembedding.weight = self.embedding.weight

    def encode(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, S, hidden] of texts.

        Args:
            tokens: Numbers of tokens [B, S]; those from ``lengths`` on are padding.
            lengths: Tokens of each text, i32[B].
        """
        places = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.int32)
        bias = self.encoder_bias(places[None], places) + masked(places < lengths[:, None])[:, None, None]
        x = self.embedding(tokens)
        for layer in self.encoder:
            assert isinstance(layer, T5Block)
            x = layer.encode(x, bias)
        hidden: torch.Tensor = self.encoder_norm(x)
        return hidden

    def remember(self, hidden: torch.Tensor, lengths: torch.Tensor, cross: CrossCache, slots: torch.Tensor) -> None:
        """Keys and values of encoded texts [B, S, hidden], written into slots [B] of ``cross``."""
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, T5Block)
            cross.write(i, slots, *layer.cross.attention.projected(hidden)[1:])
        cross.lengths.index_copy_(0, slots.long(), lengths.to(cross.lengths.dtype))

    def forward(
        self,
        tokens: torch.Tensor,
        cross: CrossCache,
        slots: torch.Tensor,
        cache: PagedView | WholeSequence | None = None,
    ) -> torch.Tensor:
        """Hidden states [B, T, hidden] of the decoder after the last norm.

        Args:
            tokens: Numbers of the decoder's tokens [B, T].
            cross: Keys and values of the texts.
            slots: Slot of each sequence's text, i32[B].
            cache: View of the cache to attend to; by default the tokens themselves.
        """
        cache = WholeSequence(tokens) if cache is None else cache
        own, places = cache.positions(), cache.places()
        biases = (
            self.decoder_bias(own, places) + masked(places <= own[..., None])[:, None],
            masked(torch.arange(cross.length, device=tokens.device) < cross.lengths[slots][:, None])[:, None, None],
        )
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, T5Block)
            keys, values = cross.tables(i)
            x = layer.decode(x, cache, (keys[slots], values[slots]), biases)
        hidden: torch.Tensor = self.norm(x)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocabulary] of hidden states."""
        logits: torch.Tensor = self.unembedding(hidden * self.config.logit_scale)
        return logits

    def step(
        self,
        tokens: torch.Tensor,
        first: torch.Tensor,
        table: torch.Tensor,
        cache: PagedCache,
        cross: CrossCache,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """Logits [B, vocabulary] after the last of the new tokens [B, T]; see :meth:`CausalModel.step`."""
        return self.head(self(tokens, cross, slots, cache.view(table, first, tokens.shape[1]))[:, -1])
