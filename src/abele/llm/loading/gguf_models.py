"""Configurations out of GGUF's metadata, by ``general.architecture``.

Source: names of the entries are those of the format's specification (docs/gguf.md in ggml's repository).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from abele.errors import nearest
from abele.llm.config import (
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    ModelConfig,
    ModelConfigError,
    NeoXConfig,
    Rotary,
    RotaryScaling,
)
from abele.weights import WeightFile

ROTARY_FACTORS = "rope_freqs.weight"
"""Divisors of the frequencies of rotary embeddings: how Llama 3.1 and later are stored."""
_LLAMA3 = {"low": 1.0, "high": 4.0, "trained": 8192}
"""Source: Llama 3.1's published configuration; files of GGUF have its effect alone."""


class GgufEntries:
    """Metadata of one architecture: ``entries["block_count"]`` is ``llama.block_count``."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.architecture = file.metadata.get("general.architecture")

    def get(self, name: str, default: Any = None) -> Any:
        """An entry, or ``default``."""
        return self.file.metadata.get(f"{self.architecture}.{name}", default)

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise ModelConfigError(f"{self.file.path}: the metadata have no {self.architecture}.{name}")
        if isinstance(found, np.ndarray):  # one per layer
            if len(set(found.tolist())) != 1:
                raise ModelConfigError(f"{self.file.path}: layers differ in {self.architecture}.{name}")
            return found[0].item()
        return found


def config_of(file: WeightFile) -> ModelConfig:
    """The configuration of a GGUF file.

    Raises:
        ModelConfigError: The architecture is unknown, an entry is missing, or one asks for what no module has.
    """
    told = GgufEntries(file)
    if told.architecture not in ARCHITECTURES:
        close = nearest(str(told.architecture), ARCHITECTURES)
        raise ModelConfigError(
            f"{file.path}: models of architecture {told.architecture!r} are not read",
            remedy=f"did you mean {close!r}?" if close else f"one of {', '.join(ARCHITECTURES)}",
        )
    return ARCHITECTURES[told.architecture](told)


def _sizes(told: GgufEntries) -> dict[str, Any]:
    heads, hidden = told["attention.head_count"], told["embedding_length"]
    tokens = told.file.get("token_embd.weight")
    if tokens is None or len(tokens.shape) != 2:
        raise ModelConfigError(f"{told.file.path}: there is no matrix token_embd.weight")
    if type(heads) is not int or heads < 1:
        raise ModelConfigError(f"{told.file.path}: {heads!r} heads")
    return {
        "vocabulary": tokens.shape[0],
        "hidden": hidden,
        "layers": told["block_count"],
        "heads": heads,
        "kv_heads": heads if told.get("attention.head_count_kv") is None else told["attention.head_count_kv"],
        "head_size": told.get("attention.key_length", hidden // heads),
        "wide": told["feed_forward_length"],
        "positions": told["context_length"],
        "tied_head": "output.weight" not in told.file,
    }


def _eps(told: GgufEntries, name: str) -> float:
    """An epsilon as it was written in decimals before f32 took it."""
    return float(f"{told[f'attention.{name}']:.7g}")


def _rotary(told: GgufEntries, head_size: int) -> Rotary:
    turned = told.get("rope.dimension_count", head_size)
    base = float(told.get("rope.freq_base", 10000.0))
    kind = told.get("rope.scaling.type", "none")
    scaling = None
    if kind == "linear":
        scaling = RotaryScaling(kind="linear", factor=float(told["rope.scaling.factor"]))
    elif kind != "none":
        raise ModelConfigError(f"{told.file.path}: rotary scaling {kind!r} is not supported", remedy="none or linear")
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in told.file:
            raise ModelConfigError(f"{told.file.path}: rotary scaling by {name} is not supported")
    if ROTARY_FACTORS in told.file:
        scaling = _llama3(told, base, turned)
    return Rotary(base=base, fraction=turned / head_size, scaling=scaling)


def _llama3(told: GgufEntries, base: float, turned: int) -> RotaryScaling:
    """The scaling of which the file has the effect: Llama 3.1's with the largest divisor as its factor."""
    divisors = told.file[ROTARY_FACTORS].read(np.float64).reshape(-1)
    factor = float(divisors.max(initial=1.0))
    wavelengths = 2 * math.pi * base ** (np.arange(0, turned, 2) / turned)
    blend = (_LLAMA3["trained"] / wavelengths - _LLAMA3["low"]) / (_LLAMA3["high"] - _LLAMA3["low"])
    blend = blend.clip(0, 1)
    if divisors.shape != blend.shape or not np.allclose(1 / divisors, blend + (1 - blend) / factor, rtol=1e-3):
        raise ModelConfigError(
            f"{told.file.path}: the divisors in {ROTARY_FACTORS} are not those of Llama 3.1's rotary embeddings"
        )
    return RotaryScaling(
        kind="llama3", factor=factor, low=_LLAMA3["low"], high=_LLAMA3["high"], trained=int(_LLAMA3["trained"])
    )


def _llama_sizes(told: GgufEntries) -> dict[str, Any]:
    sizes = _sizes(told)
    return sizes | {"norm_eps": _eps(told, "layer_norm_rms_epsilon"), "rotary": _rotary(told, sizes["head_size"])}


def _llama(told: GgufEntries) -> LlamaConfig:
    sizes = _llama_sizes(told) | {
        "query_bias": "blk.0.attn_q.bias" in told.file,
        "out_bias": "blk.0.attn_output.bias" in told.file,
    }
    if not told.get("expert_count"):
        return LlamaConfig(**sizes)
    return MixtralConfig(**sizes, experts=told["expert_count"], chosen=told["expert_used_count"])


def _qwen2(told: GgufEntries) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), query_bias=True)


def _qwen3(told: GgufEntries) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), head_norms=True)


def _granite(told: GgufEntries) -> LlamaConfig:
    return LlamaConfig(
        **_llama_sizes(told),
        embedding_scale=float(told.get("embedding_scale", 1.0)),
        residual_scale=float(told.get("residual_scale", 1.0)),
        logit_scale=1.0 / float(told.get("logit_scale", 1.0)),
        scale=told.get("attention.scale"),
    )


def _gemma(told: GgufEntries) -> LlamaConfig:
    sizes = _llama_sizes(told)
    return LlamaConfig(**sizes, activation="gelu_tanh", embedding_scale=sizes["hidden"] ** 0.5)


_GEMMA2_27B_LAYERS = 46
"""The one Gemma 2 whose scores are divided by √(hidden / heads). Source: Gemma 2's published configurations."""


def _gemma2(told: GgufEntries) -> LlamaConfig:
    sizes = _llama_sizes(told)
    per_head = sizes["hidden"] // sizes["heads"] if sizes["layers"] == _GEMMA2_27B_LAYERS else sizes["head_size"]
    return LlamaConfig(
        **sizes,
        activation="gelu_tanh",
        embedding_scale=sizes["hidden"] ** 0.5,
        post_norms=True,
        window=told.get("attention.sliding_window", 4096),
        full_layers=tuple(range(1, sizes["layers"], 2)),
        scale=per_head**-0.5,
        score_softcap=told.get("attn_logit_softcapping", 50.0),
        logit_softcap=told.get("final_logit_softcapping", 30.0),
    )


def _phi3(told: GgufEntries) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), window=told.get("attention.sliding_window") or None)


def _gpt2(told: GgufEntries) -> GPT2Config:
    return GPT2Config(**_sizes(told), norm_eps=_eps(told, "layer_norm_epsilon"))


def _neox(told: GgufEntries) -> NeoXConfig:
    sizes = _sizes(told)
    return NeoXConfig(
        **sizes,
        norm_eps=_eps(told, "layer_norm_epsilon"),
        rotary=_rotary(told, sizes["head_size"]),
        parallel=bool(told.get("use_parallel_residual", True)),
    )


ARCHITECTURES: dict[str, Callable[[GgufEntries], ModelConfig]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "granite": _granite,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gptneox": _neox,
}
"""Architectures that are read."""
