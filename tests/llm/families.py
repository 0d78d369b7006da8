"""Small models of transformers, and the same weights in modules of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

from abele.llm.config import (
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    ModelConfig,
    NeoXConfig,
    Rotary,
    RotaryScaling,
    T5Config,
)
from abele.llm.models.causal import CausalModel
from abele.llm.models.gpt2 import GPT2
from abele.llm.models.llama import Llama
from abele.llm.models.mixtral import Mixtral
from abele.llm.models.neox import NeoX
from abele.llm.models.t5 import T5

_SIZES = {
    "vocabulary": 67,
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_size": 8,
    "wide": 48,
    "positions": 64,
}
_HF = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
_LLAMA_NAMES = {
    r"model\.": "",
    r"embed_tokens": "embedding",
    r"lm_head": "unembedding",
    r"self_attn\.q_proj": "attention.query",
    r"self_attn\.k_proj": "attention.key",
    r"self_attn\.v_proj": "attention.value",
    r"self_attn\.o_proj": "attention.out",
    r"self_attn\.q_norm": "attention.query_norm",
    r"self_attn\.k_norm": "attention.key_norm",
    r"mlp\.(gate|up|down)_proj": r"wide.\1",
    r"input_layernorm": "attention_norm",
    r"mlp\.gate\.weight": "wide.mixture.router.weight",
}
_AFTER = {r"post_attention_layernorm": "wide_norm"}
_GEMMA2 = {
    r"post_attention_layernorm": "post_attention_norm",
    r"pre_feedforward_layernorm": "wide_norm",
    r"post_feedforward_layernorm": "post_wide_norm",
}
_GPT2 = {
    r"transformer\.": "",
    r"^h\.": "layers.",
    r"wte": "embedding",
    r"wpe": "position_embedding",
    r"lm_head": "unembedding",
    r"ln_f": "norm",
    r"ln_1": "attention_norm",
    r"ln_2": "wide_norm",
    r"attn\.c_proj": "attention.out",
    r"mlp\.c_fc": "wide.up",
    r"mlp\.c_proj": "wide.down",
}
_GPTJ = {
    r"attn\.q_proj": "attention.query",
    r"attn\.k_proj": "attention.key",
    r"attn\.v_proj": "attention.value",
    r"attn\.out_proj": "attention.out",
    r"mlp\.fc_in": "wide.up",
    r"mlp\.fc_out": "wide.down",
}
_NEOX = {
    r"gpt_neox\.": "",
    r"embed_in": "embedding",
    r"lm_head": "unembedding",
    r"final_layer_norm": "norm",
    r"input_layernorm": "attention_norm",
    r"post_attention_layernorm": "wide_norm",
    r"attention\.dense": "attention.out",
    r"mlp\.dense_h_to_4h": "wide.up",
    r"mlp\.dense_4h_to_h": "wide.down",
}
_PHI = {
    r"model\.": "",
    r"embed_tokens": "embedding",
    r"lm_head": "unembedding",
    r"final_layernorm": "norm",
    r"input_layernorm": "attention_norm",
    r"self_attn\.q_proj": "attention.query",
    r"self_attn\.k_proj": "attention.key",
    r"self_attn\.v_proj": "attention.value",
    r"self_attn\.dense": "attention.out",
    r"mlp\.fc1": "wide.up",
    r"mlp\.fc2": "wide.down",
}
_T5 = {
    r"encoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias": "encoder_bias.biases",
    r"decoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias": "decoder_bias.biases",
    r"shared": "embedding",
    r"lm_head": "unembedding",
    r"encoder\.final_layer_norm": "encoder_norm",
    r"decoder\.final_layer_norm": "norm",
    r"encoder\.block": "encoder",
    r"decoder\.block": "layers",
    r"layer\.0\.layer_norm": "own.norm",
    r"layer\.0\.SelfAttention": "own.attention",
    r"layer\.1\.EncDecAttention": "cross.attention",
    r"layer\.\d\.DenseReluDense\.wi_0": "wide.gate",
    r"layer\.\d\.DenseReluDense\.(wi_1|wi)": "wide.up",
    r"layer\.\d\.DenseReluDense\.wo": "wide.down",
    r"attention\.q": "attention.query",
    r"attention\.k": "attention.key",
    r"attention\.v": "attention.value",
    r"attention\.o": "attention.out",
    r"(layers\.\d+)\.layer\.1\.layer_norm": r"\1.cross.norm",
    r"layer\.\d\.layer_norm": "wide_norm",
}


def _renamed(state: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    made = {}
    for name, value in state.items():
        for pattern, to in names.items():
            name = re.sub(pattern, to, name)
        made[name] = value
    return made


def _split(name: str, value: torch.Tensor, at: str) -> dict[str, torch.Tensor]:
    """A joined weight or bias of queries, keys and values as three."""
    parts = zip(("query", "key", "value"), value.chunk(3), strict=True)
    return {name.replace(at, f"attention.{part}"): piece for part, piece in parts}


def _of_gpt2(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    made = {}
    for name, value in _renamed(state, _GPT2).items():
        turned = value.T if value.dim() == 2 and ("attention" in name or "wide" in name or "c_attn" in name) else value
        made |= _split(name, turned, "attn.c_attn") if "c_attn" in name else {name: turned}
    return made


def _of_neox(state: dict[str, torch.Tensor], heads: int = 4) -> dict[str, torch.Tensor]:
    made = {}
    for name, value in _renamed(state, _NEOX).items():
        if "query_key_value" not in name:
            made[name] = value
            continue
        # NeoX keeps queries, keys and values of a head beside each other.
        apart = value.reshape(heads, 3, -1, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
        made |= _split(name, apart, "attention.query_key_value")
    return made


def _of_mixtral(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    made = {}
    for name, value in _renamed(state, _LLAMA_NAMES | _AFTER).items():
        if name.endswith("experts.gate_up_proj"):
            gate, up = value.transpose(1, 2).chunk(2, -1)
            root = name.replace("mlp.experts.gate_up_proj", "wide.mixture.")
            made |= {root + "gate": gate, root + "up": up}
        elif name.endswith("experts.down_proj"):
            made[name.replace("mlp.experts.down_proj", "wide.mixture.down")] = value.transpose(1, 2)
        else:
            made[name] = value
    return made


def _of_gemma(state: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """Gemma's norms multiply by one more than their weights."""
    return {n: v + 1 if "norm" in n else v for n, v in _renamed(state, names).items()}


def _llama(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return _renamed(state, _LLAMA_NAMES | _AFTER)


def _rope(theta: float = 10000.0, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


Family = tuple[Any, type[CausalModel], ModelConfig, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]]


def _llamas() -> dict[str, Family]:
    eps = {"rms_norm_eps": 1e-5}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {
        "llama": (tf.LlamaConfig(**_HF, **eps), Llama, LlamaConfig(**_SIZES), _llama),
        "llama 3.1, tied": (
            tf.LlamaConfig(
                **_HF,
                **eps,
                tie_word_embeddings=True,
                **_rope(500000.0, **llama3, original_max_position_embeddings=16),
            ),
            Llama,
            LlamaConfig(
                **_SIZES,
                tied_head=True,
                rotary=Rotary(base=500000.0, scaling=RotaryScaling(kind="llama3", factor=8.0, trained=16)),
            ),
            _llama,
        ),
        "llama, linear, biases": (
            tf.LlamaConfig(**_HF, **eps, attention_bias=True, mlp_bias=True, **_rope(rope_type="linear", factor=4.0)),
            Llama,
            LlamaConfig(
                **_SIZES,
                query_bias=True,
                out_bias=True,
                wide_bias=True,
                rotary=Rotary(scaling=RotaryScaling(kind="linear", factor=4.0)),
            ),
            _llama,
        ),
        "mistral": (
            tf.MistralConfig(**_HF, **eps, sliding_window=5, head_dim=8),
            Llama,
            LlamaConfig(**_SIZES, window=5),
            _llama,
        ),
        "qwen 2": (tf.Qwen2Config(**_HF, **eps), Llama, LlamaConfig(**_SIZES, query_bias=True), _llama),
        "qwen 3": (tf.Qwen3Config(**_HF, **eps, head_dim=8), Llama, LlamaConfig(**_SIZES, head_norms=True), _llama),
        "granite": (
            tf.GraniteConfig(
                **_HF,
                **eps,
                embedding_multiplier=3.0,
                residual_multiplier=0.5,
                logits_scaling=2.0,
                attention_multiplier=0.25,
            ),
            Llama,
            LlamaConfig(**_SIZES, embedding_scale=3.0, residual_scale=0.5, logit_scale=0.5, scale=0.25),
            _llama,
        ),
        "gemma": (
            tf.GemmaConfig(**_HF, **eps, head_dim=8),
            Llama,
            LlamaConfig(**_SIZES, activation="gelu_tanh", tied_head=True, embedding_scale=32**0.5),
            lambda state: _of_gemma(state, _LLAMA_NAMES | _AFTER),
        ),
        "gemma 2": (
            tf.Gemma2Config(
                **_HF,
                **eps,
                head_dim=8,
                sliding_window=5,
                query_pre_attn_scalar=16,
                attn_logit_softcapping=2.0,
                final_logit_softcapping=3.0,
            ),
            Llama,
            LlamaConfig(
                **_SIZES,
                activation="gelu_tanh",
                tied_head=True,
                embedding_scale=32**0.5,
                post_norms=True,
                window=5,
                full_layers=(1,),
                scale=16**-0.5,
                score_softcap=2.0,
                logit_softcap=3.0,
            ),
            lambda state: _of_gemma(state, _GEMMA2 | _LLAMA_NAMES),
        ),
        "mixtral": (
            tf.MixtralConfig(**_HF, **eps, **_rope(), num_local_experts=4, num_experts_per_tok=2),
            Mixtral,
            MixtralConfig(**_SIZES, experts=4, chosen=2),
            _of_mixtral,
        ),
    }


def _others() -> dict[str, Family]:
    sizes = _SIZES | {"kv_heads": 4}
    hf = {"vocab_size": 67, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}
    eager = {"attn_implementation": "eager"}
    neox = {k: v for k, v in _HF.items() if k != "num_key_value_heads"}
    partial = {"partial_rotary_factor": 0.5}
    return {
        "gpt-2": (tf.GPT2Config(**hf, **eager), GPT2, GPT2Config(**sizes), _of_gpt2),
        "gpt-j": (
            tf.GPTJConfig(**hf, **eager, rotary_dim=4),
            NeoX,
            NeoXConfig(
                **sizes,
                activation="gelu_tanh",
                rotary=Rotary(fraction=0.5, layout="pairs"),
                two_norms=False,
                query_bias=False,
                out_bias=False,
                head_bias=True,
            ),
            lambda state: _renamed(state, _GPT2 | _GPTJ),
        ),
        "neox": (
            tf.GPTNeoXConfig(**neox, **_rope(**partial)),
            NeoX,
            NeoXConfig(**sizes, rotary=Rotary(fraction=0.5)),
            _of_neox,
        ),
        "neox, one after the other": (
            tf.GPTNeoXConfig(**neox, **_rope(**partial), use_parallel_residual=False),
            NeoX,
            NeoXConfig(**sizes, rotary=Rotary(fraction=0.5), parallel=False),
            _of_neox,
        ),
        "phi": (
            tf.PhiConfig(**_HF, **_rope(**partial)),
            NeoX,
            NeoXConfig(**_SIZES, activation="gelu_tanh", rotary=Rotary(fraction=0.5), two_norms=False, head_bias=True),
            lambda state: _renamed(state, _PHI),
        ),
    }


FAMILIES = _llamas() | _others()


def pair(name: str) -> tuple[Any, CausalModel]:
    """A model of transformers with random weights, and ours with the same."""
    theirs, ours, config, renamed = FAMILIES[name]
    torch.manual_seed(0)
    oracle = tf.AutoModelForCausalLM.from_config(theirs, attn_implementation="eager").eval()
    _spread(oracle)
    model = ours(config).eval()
    state = renamed(oracle.state_dict())
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not [n for n in missing if "routed" not in n], missing
    assert not [n for n in unexpected if "inv_freq" not in n and not n.endswith("attn.bias")], unexpected
    return oracle, model


def _spread(oracle: Any) -> None:
    """Weights that make a difference: biases and norms that are not zero or one, wide enough logits."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in oracle.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.2)


def t5_pair(*, gated: bool) -> tuple[Any, T5]:
    """T5 of transformers with random weights, and ours with the same."""
    torch.manual_seed(0)
    hf = tf.T5Config(
        vocab_size=67,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        decoder_start_token_id=0,
        attn_implementation="eager",
    )
    oracle = tf.T5ForConditionalGeneration(hf).eval()
    _spread(oracle)
    config = T5Config(
        **(_SIZES | {"kv_heads": 4}),
        decoder_layers=3,
        buckets=8,
        far=12,
        gated=gated,
        activation="gelu_tanh" if gated else "relu",
        tied_head=not gated,
        logit_scale=1.0 if gated else 32**-0.5,
    )
    model = T5(config).eval()
    state = _renamed(oracle.state_dict(), _T5)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing, missing
    assert not [n for n in unexpected if "embed_tokens" not in n], unexpected
    return oracle, model
