"""Configurations out of Hugging Face's ``config.json``, by ``model_type``.

What a configuration asks for and no module of ours has, such as another scaling of rotary embeddings, is refused: a
model that writes readable text from wrong positions is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from abele.errors import nearest
from abele.llm.config import (
    Activation,
    GPT2Config,
    Layout,
    LlamaConfig,
    MixtralConfig,
    ModelConfig,
    ModelConfigError,
    NeoXConfig,
    Rotary,
    RotaryScaling,
    T5Config,
)

Told = Mapping[str, Any]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def activation_of(name: Any) -> Activation:
    """Our name of an activation.

    Raises:
        ModelConfigError: There is none like it.
    """
    if name not in _ACTIVATIONS:
        raise ModelConfigError(f"there is no activation {name!r}", remedy=f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def config_of(told: Told) -> ModelConfig:
    """The configuration of a ``config.json``.

    Raises:
        ModelConfigError: The type of model is unknown, an entry is missing, or one asks for what no module has.
    """
    kind = told.get("model_type")
    if kind not in FAMILIES:
        close = nearest(str(kind), FAMILIES)
        raise ModelConfigError(
            f"models of type {kind!r} are not read",
            remedy=f"did you mean {close!r}?" if close else f"one of {', '.join(FAMILIES)}",
        )
    try:
        return FAMILIES[kind](told)
    except KeyError as error:
        raise ModelConfigError(f"the configuration of a model of type {kind!r} has no {error}") from error
    except (TypeError, AttributeError) as error:
        raise ModelConfigError(f"the configuration of a model of type {kind!r} is wrong", because=str(error)) from error


def _off(told: Told, **wanted: Any) -> None:
    """Entries that must have these values where they are there at all."""
    for name, value in wanted.items():
        if told.get(name, value) != value:
            raise ModelConfigError(f"{name} of {told[name]!r} is not supported", because=f"{value!r} alone is")


def _rotary(told: Told, *, layout: Layout = "halves", fraction: float | None = None) -> Rotary:
    """Rotary embeddings, told in ``rope_parameters`` or in the entries that were there before it."""
    parameters = {**(told.get("rope_scaling") or {}), **(told.get("rope_parameters") or {})}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    scaling = None
    if kind == "linear":
        scaling = RotaryScaling(kind="linear", factor=parameters["factor"])
    elif kind == "llama3":
        scaling = RotaryScaling(
            kind="llama3",
            factor=parameters["factor"],
            low=parameters["low_freq_factor"],
            high=parameters["high_freq_factor"],
            trained=parameters["original_max_position_embeddings"],
        )
    elif kind != "default":
        raise ModelConfigError(f"rotary scaling {kind!r} is not supported", remedy="default, linear or llama3")
    if fraction is None:
        told_as = ("partial_rotary_factor", "rotary_pct")
        found = [place[name] for place in (parameters, told) for name in told_as if name in place]
        fraction = found[0] if found else 1.0
    base: Any = parameters.get("rope_theta", told.get("rope_theta", told.get("rotary_emb_base", 10000.0)))
    return Rotary(base=float(base), layout=layout, fraction=fraction, scaling=scaling)


def _sizes(told: Told, *, tied: bool) -> dict[str, Any]:
    heads = told["num_attention_heads"]
    return {
        "vocabulary": told["vocab_size"],
        "hidden": told["hidden_size"],
        "layers": told["num_hidden_layers"],
        "heads": heads,
        "kv_heads": told.get("num_key_value_heads") or heads,
        "head_size": told.get("head_dim") or told["hidden_size"] // heads,
        "wide": told["intermediate_size"],
        "positions": told["max_position_embeddings"],
        "tied_head": bool(told.get("tie_word_embeddings", tied)),
    }


def _window(told: Told, *, full: Callable[[int], bool] = lambda layer: False) -> dict[str, Any]:
    """The window and the layers without it; ``full`` says which those are where the file does not."""
    window, layers = told.get("sliding_window"), range(told["num_hidden_layers"])
    kinds = told.get("layer_types") or ["full_attention" if full(layer) else "sliding_attention" for layer in layers]
    without = tuple(layer for layer in layers if kinds[layer] == "full_attention")
    odd = set(kinds) - {"full_attention", "sliding_attention"}
    if odd:
        raise ModelConfigError(f"layers with {sorted(odd)[0]!r} are not supported")
    if not window or len(without) == len(layers):
        return {}
    return {"window": window, "full_layers": without}


def _llama_sizes(told: Told, *, tied: bool = False) -> dict[str, Any]:
    return _sizes(told, tied=tied) | {
        "norm_eps": told.get("rms_norm_eps", 1e-6),
        "activation": activation_of(told.get("hidden_act", "silu")),
        "rotary": _rotary(told),
    }


def _llama(told: Told) -> LlamaConfig:
    bias = bool(told.get("attention_bias", False))
    return LlamaConfig(
        **_llama_sizes(told), query_bias=bias, out_bias=bias, wide_bias=bool(told.get("mlp_bias", False))
    )


def _mistral(told: Told) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), **_window(told))


def _qwen_window(told: Told) -> dict[str, Any]:
    if not told.get("use_sliding_window", False):
        return {}
    return _window(told, full=lambda layer: layer < told.get("max_window_layers", 28))


def _qwen2(told: Told) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), query_bias=True, **_qwen_window(told))


def _qwen3(told: Told) -> LlamaConfig:
    bias = bool(told.get("attention_bias", False))
    sizes = _llama_sizes({"head_dim": 128, **told})
    return LlamaConfig(**sizes, head_norms=True, query_bias=bias, out_bias=bias, **_qwen_window(told))


def _granite(told: Told) -> LlamaConfig:
    return LlamaConfig(
        **_llama_sizes(told),
        query_bias=bool(told.get("attention_bias", False)),
        out_bias=bool(told.get("attention_bias", False)),
        wide_bias=bool(told.get("mlp_bias", False)),
        embedding_scale=float(told.get("embedding_multiplier", 1.0)),
        residual_scale=float(told.get("residual_multiplier", 1.0)),
        logit_scale=1.0 / told.get("logits_scaling", 1.0),
        scale=float(told.get("attention_multiplier", 1.0)),
    )


def _gemma_sizes(told: Told) -> dict[str, Any]:
    # Early files say "gelu" and mean its approximation by tanh.
    sizes = _llama_sizes({"head_dim": 256, **told, "hidden_act": "gelu_pytorch_tanh"}, tied=True)
    return sizes | {"embedding_scale": told["hidden_size"] ** 0.5}


def _gemma(told: Told) -> LlamaConfig:
    _off(told, attention_bias=False)
    return LlamaConfig(**_gemma_sizes(told))


def _gemma2(told: Told) -> LlamaConfig:
    _off(told, attention_bias=False)
    return LlamaConfig(
        **_gemma_sizes(told),
        post_norms=True,
        scale=told.get("query_pre_attn_scalar", 256) ** -0.5,
        score_softcap=told.get("attn_logit_softcapping"),
        logit_softcap=told.get("final_logit_softcapping"),
        **_window(told, full=lambda layer: layer % 2 == 1),
    )


def _phi3(told: Told) -> LlamaConfig:
    return LlamaConfig(**_llama_sizes(told), **_window(told))


def _mixtral(told: Told) -> MixtralConfig:
    experts = {"experts": told["num_local_experts"], "chosen": told["num_experts_per_tok"]}
    return MixtralConfig(**_llama_sizes(told), **_window(told), **experts)


def _gpt2_sizes(told: Told, *, tied: bool) -> dict[str, Any]:
    return {
        "vocabulary": told["vocab_size"],
        "hidden": told["n_embd"],
        "layers": told["n_layer"],
        "heads": told["n_head"],
        "kv_heads": told["n_head"],
        "head_size": told["n_embd"] // told["n_head"],
        "wide": told.get("n_inner") or 4 * told["n_embd"],
        "positions": told["n_positions"],
        "norm_eps": told.get("layer_norm_epsilon", 1e-5),
        "activation": activation_of(told.get("activation_function", "gelu_new")),
        "tied_head": bool(told.get("tie_word_embeddings", tied)),
    }


def _gpt2(told: Told) -> GPT2Config:
    _off(told, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return GPT2Config(**_gpt2_sizes(told, tied=True))


def _gptj(told: Told) -> NeoXConfig:
    sizes = _gpt2_sizes(told, tied=False)
    turned = told.get("rotary_dim") or sizes["head_size"]
    return NeoXConfig(
        **sizes,
        rotary=Rotary(layout="pairs", fraction=turned / sizes["head_size"]),
        two_norms=False,
        query_bias=False,
        out_bias=False,
        head_bias=True,
    )


def _neox(told: Told) -> NeoXConfig:
    bias = bool(told.get("attention_bias", True))
    return NeoXConfig(
        **_sizes(told, tied=False),
        norm_eps=told.get("layer_norm_eps", 1e-5),
        activation=activation_of(told.get("hidden_act", "gelu")),
        rotary=_rotary({"rotary_pct": 0.25, **told}),
        parallel=bool(told.get("use_parallel_residual", True)),
        query_bias=bias,
        out_bias=bias,
    )


def _phi(told: Told) -> NeoXConfig:
    _off(told, qk_layernorm=False)
    return NeoXConfig(
        **_sizes(told, tied=False),
        norm_eps=told.get("layer_norm_eps", 1e-5),
        activation=activation_of(told.get("hidden_act", "gelu_new")),
        rotary=_rotary({"partial_rotary_factor": 0.5, **told}),
        two_norms=False,
        head_bias=True,
    )


def _t5(told: Told) -> T5Config:
    kind = told.get("feed_forward_proj", "relu")
    gated = kind.startswith("gated-")
    plain = kind.removeprefix("gated-")
    # Early files scale where the head is tied; later ones say both apart, and call every head tied.
    tied = bool(told.get("tie_word_embeddings", True))
    scaled = bool(told.get("scale_decoder_outputs", tied))
    return T5Config(
        vocabulary=told["vocab_size"],
        hidden=told["d_model"],
        layers=told["num_layers"],
        decoder_layers=told.get("num_decoder_layers"),
        heads=told["num_heads"],
        kv_heads=told["num_heads"],
        head_size=told["d_kv"],
        wide=told["d_ff"],
        positions=told.get("n_positions", 512),
        norm_eps=told.get("layer_norm_epsilon", 1e-6),
        activation="gelu_tanh" if gated and plain == "gelu" else activation_of(plain),
        buckets=told.get("relative_attention_num_buckets", 32),
        far=told.get("relative_attention_max_distance", 128),
        gated=gated,
        tied_head=tied,
        logit_scale=told["d_model"] ** -0.5 if scaled else 1.0,
    )


FAMILIES: dict[str, Callable[[Told], ModelConfig]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "granite": _granite,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "phi3": _phi3,
    "mixtral": _mixtral,
    "gpt2": _gpt2,
    "gptj": _gptj,
    "gpt_neox": _neox,
    "phi": _phi,
    "t5": _t5,
}
"""Types of models that are read."""
