"""Sizes and variants of language models, one frozen class per family.

``SMOLLM2_135M.hidden == 576`` of 9 heads with 64 channels each; its keys and values have 3 heads, so that a position of
its cache takes 30 layers · 2 · 3 · 64 numbers: 23,040 B in f16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from abele.errors import InvalidOptionError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
Layout = Literal["halves", "pairs"]


class ModelConfigError(InvalidOptionError):
    """Sizes of a language model that do not go together, or an unknown variant."""


def _require(holds: bool, message: str, because: str | None = None) -> None:
    if not holds:
        raise ModelConfigError(message, because=because)


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """Frequencies of rotary embeddings for contexts longer than those trained at first.

    Attributes:
        kind: "linear" divides every frequency by ``factor``; "llama3" divides the low ones and blends those between.
        factor: Divisor of frequencies.
        low: Wavelengths over ``trained / low`` are divided ("llama3").
        high: Wavelengths under ``trained / high`` stay ("llama3").
        trained: Positions trained at first ("llama3").
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low: float = 1.0
    high: float = 4.0
    trained: int = 8192

    def __post_init__(self) -> None:
        _require(self.kind in ("linear", "llama3"), f"rotary scaling {self.kind!r} is unknown", "linear or llama3")
        _require(self.factor > 0, f"rotary scaling by {self.factor}: the factor must be positive")
        _require(self.kind == "linear" or self.high > self.low, f"rotary scaling from {self.low} to {self.high}")


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotation of channels by angles that grow with the position.

    Attributes:
        base: Base of the geometric series of wavelengths.
        layout: "halves" turns channel i with channel i + size / 2 (NeoX, Hugging Face's Llama); "pairs" turns
            channels 2i and 2i + 1 (GPT-J, Meta's and GGUF's Llama).
        fraction: Part of a head's channels that turns; the others stay as they are.
        scaling: Change of frequencies for longer contexts.
    """

    base: float = 10000.0
    layout: Layout = "halves"
    fraction: float = 1.0
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        _require(self.base > 0, f"rotary base {self.base} must be positive")
        _require(self.layout in ("halves", "pairs"), f"rotary layout {self.layout!r} is unknown", "halves or pairs")
        _require(0 < self.fraction <= 1, f"rotary fraction {self.fraction} must lie in 0 … 1")

    def size(self, head_size: int) -> int:
        """Channels of a head that turn."""
        return int(head_size * self.fraction)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes that every family has.

    Attributes:
        vocabulary: Rows of the embedding.
        hidden: Width of the residual stream.
        layers: Blocks (T5: of each of the encoder and the decoder).
        heads: Heads of queries.
        kv_heads: Heads of keys and values; each serves ``heads / kv_heads`` heads of queries.
        head_size: Channels per head.
        wide: Width inside the feed-forward part.
        positions: Longest context.
        norm_eps: Added to the variance in norms.
        activation: Nonlinearity of the feed-forward part.
        tied_head: True where the head's weight is the embedding.
    """

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    wide: int
    positions: int
    norm_eps: float = 1e-5
    activation: Activation = "silu"
    tied_head: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "hidden", "layers", "heads", "kv_heads", "head_size", "wide", "positions"):
            size = getattr(self, name)
            _require(isinstance(size, int) and size > 0, f"{name} is {size!r}, must be a whole number above zero")
        _require(
            self.heads % self.kv_heads == 0,
            f"{self.heads} heads of queries cannot share {self.kv_heads} heads of keys evenly",
        )
        _require(self.norm_eps > 0, f"norm_eps is {self.norm_eps}, must be above zero")
        _require(self.activation in ("silu", "gelu", "gelu_tanh", "relu"), f"activation {self.activation!r} is unknown")

    @property
    def cached_layers(self) -> int:
        """Layers that keep keys and values of positions already seen."""
        return self.layers

    def window_of(self, layer: int) -> int | None:
        """Positions that a query of this layer sees, itself included; None for all before it."""
        return None


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """Llama and what differs from it by a switch: Mistral, Qwen 2 and 3, Gemma 1 and 2, Granite, Phi-3, SmolLM.

    Attributes:
        rotary: Turning of queries and keys.
        query_bias: Biases of queries, keys and values (Qwen 2).
        out_bias: Bias of attention's output.
        wide_bias: Biases of the feed-forward part.
        head_norms: RMS norms over the channels of each head of queries and keys (Qwen 3).
        post_norms: Norms of what a part adds, before it is added (Gemma 2).
        window: Positions that a query sees, itself included (Mistral, Gemma 2).
        full_layers: Layers without the window.
        scale: Factor of scores; by default 1 / √head_size.
        score_softcap: c in c·tanh(score / c).
        logit_softcap: c in c·tanh(logit / c).
        embedding_scale: Factor of embeddings (Gemma: √hidden).
        residual_scale: Factor of what each part adds (Granite).
        logit_scale: Factor of logits (Granite).
    """

    rotary: Rotary = Rotary()
    query_bias: bool = False
    out_bias: bool = False
    wide_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    window: int | None = None
    full_layers: tuple[int, ...] = ()
    scale: float | None = None
    score_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.window is None or self.window > 0, f"a window of {self.window} positions sees nothing")
        _require(
            self.rotary.size(self.head_size) % 2 == 0,
            f"rotary embeddings of {self.rotary.size(self.head_size)} channels: they turn in pairs",
        )

    def window_of(self, layer: int) -> int | None:
        """Positions that a query of this layer sees, itself included; None for all before it."""
        return None if layer in self.full_layers else self.window


SMOLLM2_135M = LlamaConfig(
    vocabulary=49152,
    hidden=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_size=64,
    wide=1536,
    positions=8192,
    tied_head=True,
    rotary=Rotary(base=100000.0),
)


@dataclass(frozen=True, kw_only=True)
class GPT2Config(ModelConfig):
    """GPT-2 and others with learned positions: GPT-Neo, StarCoder, OPT.

    Attributes:
        query_bias: Biases of queries, keys and values.
        window: Positions that a query sees, itself included (GPT-Neo).
        full_layers: Layers without the window.
        scale: Factor of scores; by default 1 / √head_size (GPT-Neo: 1).
    """

    activation: Activation = "gelu_tanh"
    tied_head: bool = True
    query_bias: bool = True
    window: int | None = None
    full_layers: tuple[int, ...] = ()
    scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.window is None or self.window > 0, f"a window of {self.window} positions sees nothing")

    def window_of(self, layer: int) -> int | None:
        """Positions that a query of this layer sees, itself included; None for all before it."""
        return None if layer in self.full_layers else self.window


@dataclass(frozen=True, kw_only=True)
class NeoXConfig(ModelConfig):
    """GPT-J, GPT-NeoX (Pythia, Dolly), Phi: rotary embeddings, layer norms, and parts beside each other.

    Attributes:
        rotary: Turning of queries and keys, often of a part of the channels.
        parallel: True where attention and the feed-forward part read the same residual stream.
        two_norms: True where they have norms of their own (NeoX); False for one norm (GPT-J, Phi).
        query_bias: Biases of queries, keys and values.
        out_bias: Bias of attention's output.
        head_bias: Bias of logits.
    """

    activation: Activation = "gelu"
    rotary: Rotary = Rotary(fraction=0.25)
    parallel: bool = True
    two_norms: bool = True
    query_bias: bool = True
    out_bias: bool = True
    head_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.two_norms or self.parallel, "parts one after the other need two norms")
        _require(
            self.rotary.size(self.head_size) % 2 == 0,
            f"rotary embeddings of {self.rotary.size(self.head_size)} channels: they turn in pairs",
        )


@dataclass(frozen=True, kw_only=True)
class T5Config(ModelConfig):
    """T5 and Flan-T5: an encoder, and a decoder that attends to it.

    Attributes:
        decoder_layers: Blocks of the decoder; by default ``layers``.
        buckets: Distances that have a bias of their own.
        far: Distance from which on all share the last bucket.
        gated: True for a gated feed-forward part (T5 1.1, Flan-T5).
        logit_scale: Factor of hidden states before the head (T5 1.0: hidden^-½).
    """

    activation: Activation = "relu"
    norm_eps: float = 1e-6
    decoder_layers: int | None = None
    buckets: int = 32
    far: int = 128
    gated: bool = False
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.kv_heads == self.heads, "T5 has as many heads of keys as of queries")
        _require(self.buckets >= 4 and self.buckets % 4 == 0, f"{self.buckets} buckets: a multiple of 4 is needed")
        _require(self.far > self.buckets // 2, f"distances up to {self.far} need no {self.buckets} buckets")

    @property
    def cached_layers(self) -> int:
        """Layers that keep keys and values of positions already seen: those of the decoder."""
        return self.decoder_layers or self.layers


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(LlamaConfig):
    """Llama with experts in place of the feed-forward part: Mixtral, Qwen 3 with experts.

    Attributes:
        experts: Experts per layer, each as wide as ``wide``.
        chosen: Experts that each token uses.
        normalise: True to divide the weights of a token's experts by their sum.
    """

    experts: int = 8
    chosen: int = 2
    normalise: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(0 < self.chosen <= self.experts, f"{self.chosen} of {self.experts} experts cannot be chosen")
        _require(self.activation in ("silu", "gelu", "relu"), f"experts have no activation {self.activation!r}")
