"""Programs behind published rates of language models: decoders whose weights are streamed, and BERT on one card.

Each is built of the modules of a model, as published: half of the partial sums in float16, products with a fifth of a
tile's memory, weights of a layer from streaming memory before it runs, no cache. Two and three layers are compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from abele.frontends.poptorch.fp8.convert import fp8_linear
from abele.llm.config import ModelConfig
from abele.llm.sizing import Costing
from abele.llm.sizing.measure import ModelPart, PartCost, measured
from abele.llm.sizing.spread import LayerCosts
from abele.machine import System
from abele.session import Settings

STREAMED = Settings(partials="f16", memory_proportion=0.2)
"""Planning of products of the published decoders. Source: llm.md §2, the scheme shared by all."""
CARD = Settings(partials="f16")
"""Planning of products of the published encoder: the library's own."""


def streamed_step_seconds(
    config: ModelConfig, *, group: int, positions: int, batch: int, format: str, system: System
) -> float:
    """Seconds of one step that computes whole sequences again, for the logits of their last token.

    Args:
        config: The model.
        group: IPUs that compute each layer together.
        positions: Length of a sequence.
        batch: Sequences.
        format: Number format of weights.
        system: The machine.
    """
    costing = Costing(config, system, STREAMED, format)
    how = {"group": group, "batch": batch, "tokens": positions, "streamed": True}
    layers = costing.layers(cached=0, **how)  # type: ignore[arg-type]
    ends = costing.ends(to_host=True, **how)  # type: ignore[arg-type]
    return system.seconds(layers.of(config.layers, looped=True).cycles + ends.cycles + ends.host)


@dataclass(frozen=True)
class EncoderRun:
    """BERT that answers questions, on one IPU.

    Attributes:
        batch: Sequences.
        positions: Length of each.
        format: "f32", "f16" or "f143".
        fused_gelu: False where GELU is as many operations as its formula has.
        layers: Layers of the encoder.
        width: Elements per position.
        heads: Heads of attention.
        vocabulary: Rows of the embedding.
    """

    batch: int
    positions: int
    format: str
    fused_gelu: bool = True
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522


class _PlainGelu(nn.Module):
    """GELU by its formula."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x · Φ(x)."""
        return x * 0.5 * (torch.erf(x / 2**0.5) + 1.0)


class _EncoderLayer(nn.Module):
    """A layer of the encoder: attention and two products, each added to its input and normalised."""

    def __init__(self, run: EncoderRun) -> None:
        super().__init__()
        self.heads = run.heads
        self.read, self.joined = nn.Linear(run.width, 3 * run.width), nn.Linear(run.width, run.width)
        self.widen, self.narrow = nn.Linear(run.width, 4 * run.width), nn.Linear(4 * run.width, run.width)
        self.attended, self.norm = nn.LayerNorm(run.width), nn.LayerNorm(run.width)
        self.act = nn.GELU() if run.fused_gelu else _PlainGelu()

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """[batch, positions, width] of the same shape; ``hidden`` is added to scores."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.read(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        x = self.attended(x + self.joined(mixed.transpose(1, 2).flatten(2)))
        made: torch.Tensor = self.norm(x + self.narrow(self.act(self.widen(x))))
        return made


class QuestionAnswering(nn.Module):
    """Embeddings, layers of an encoder, and scores of starts and ends of answers.

    Args:
        run: Sizes.
        layers: Layers.
    """

    def __init__(self, run: EncoderRun, layers: int) -> None:
        super().__init__()
        self.tokens, self.segments = nn.Embedding(run.vocabulary, run.width), nn.Embedding(2, run.width)
        self.places = nn.Embedding(max(512, run.positions), run.width)
        self.norm = nn.LayerNorm(run.width)
        self.layers = nn.ModuleList(_EncoderLayer(run) for _ in range(layers))
        self.answers = nn.Linear(run.width, 2)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Scores [batch, positions, 2]; ``mask`` is 1 where a position holds a token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.places(places) + self.segments(segments))
        hidden = ((1 - mask.to(x.dtype)) * -10_000.0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, hidden)
        scores: torch.Tensor = self.answers(x)
        return scores


@dataclass(frozen=True)
class EncoderCost:
    """Cost of one run.

    Attributes:
        seconds: Seconds, with the host's streams.
        lacking: Bytes that the fullest tile has too few.
    """

    seconds: float
    lacking: int


def encoder_cost(run: EncoderRun, system: System) -> EncoderCost:
    """Cost of one run, of two and of three compiled layers."""
    costs = LayerCosts(*(_encoder_part(run, layers, system) for layers in (2, 3)))
    whole = costs.of(run.layers)
    by_tile = sum(whole.bytes.values(), np.zeros_like(whole.bytes["peak"]))
    seconds = system.seconds(whole.cycles + costs.two.host)
    return EncoderCost(seconds, max(0, int(by_tile.max()) - costs.two.available))


def _encoder_part(run: EncoderRun, layers: int, system: System) -> PartCost:
    dtype = torch.float32 if run.format == "f32" else torch.float16
    with torch.device("meta"):
        model: nn.Module = QuestionAnswering(run, layers).to(dtype)
    if run.format == "f143":
        model = fp8_linear(model, skip=("answers",))
    shape = run.batch, run.positions
    inputs = tuple(torch.zeros(shape, dtype=torch.int32) for _ in range(3))
    settings = replace(CARD, shared_functions=True, partials="f32" if run.format == "f32" else "f16")
    return measured(ModelPart(model, inputs), 1, system, settings)
