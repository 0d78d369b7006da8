"""Models that are sized by name. Sizes are those of the published configurations."""

from __future__ import annotations

from abele.errors import InvalidOptionError, nearest
from abele.llm.config import SMOLLM2_135M, LlamaConfig, ModelConfig, NeoXConfig, Rotary


def _llama2(hidden: int, layers: int, heads: int, kv_heads: int, wide: int) -> LlamaConfig:
    return LlamaConfig(
        vocabulary=32_000,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=128,
        wide=wide,
        positions=4096,
    )


def _neox(hidden: int, layers: int, heads: int) -> NeoXConfig:
    """A model of Pythia's kind."""
    return NeoXConfig(
        vocabulary=50_688,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        wide=4 * hidden,
        positions=2048,
    )


GPT_J_6B = NeoXConfig(
    vocabulary=50_400,
    hidden=4096,
    layers=28,
    heads=16,
    kv_heads=16,
    head_size=256,
    wide=16_384,
    positions=2048,
    activation="gelu_tanh",
    rotary=Rotary(layout="pairs", fraction=0.25),
    two_norms=False,
    query_bias=False,
    out_bias=False,
    head_bias=True,
)

MODELS: dict[str, ModelConfig] = {
    "smollm2-135m": SMOLLM2_135M,
    "llama-2-7b": _llama2(4096, 32, 32, 32, 11_008),
    "llama-2-13b": _llama2(5120, 40, 40, 40, 13_824),
    "llama-2-70b": _llama2(8192, 80, 64, 8, 28_672),
    "mistral-7b": LlamaConfig(
        vocabulary=32_000,
        hidden=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_size=128,
        wide=14_336,
        positions=32_768,
        window=4096,
    ),
    "gpt-j-6b": GPT_J_6B,
    "pythia-1b": _neox(2048, 16, 8),
    "pythia-12b": _neox(5120, 36, 40),
    "dolly-12b": _neox(5120, 36, 40),
}
"""Configurations by name."""


def model_named(name: str) -> ModelConfig:
    """The configuration of a name.

    Raises:
        InvalidOptionError: No model is called so.
    """
    known = MODELS.get(name.lower())
    if known is None:
        close = nearest(name.lower(), MODELS)
        raise InvalidOptionError(
            f"no language model is called {name!r}",
            because=f"the models are {', '.join(MODELS)}",
            remedy=f"did you mean {close}?" if close else None,
        )
    return known


def num_weights(config: ModelConfig) -> int:
    """Weights of a model, those of norms and biases left out."""
    attention = config.hidden * config.head_size * 2 * (config.heads + config.kv_heads)
    products = 3 if isinstance(config, LlamaConfig) else 2
    ends = config.vocabulary * config.hidden * (1 if config.tied_head else 2)
    return config.layers * (attention + products * config.hidden * config.wide) + ends
