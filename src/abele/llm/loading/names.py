"""Names of our modules' parameters to names of tensors in files, one table per naming scheme.

``layers.3.attention.query.weight`` of Llama is ``model.layers.3.self_attn.q_proj.weight`` in Hugging Face's files and
``blk.3.attn_q.weight`` in GGUF's. Some files join what we keep apart (queries, keys and values in one matrix), turn
matrices round (GPT-2), or order rows otherwise: GGUF's Llama has the channels of a head that rotate together beside
each other, ours have them half a head apart. All but turning is a choice of rows, which quantised matrices take too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Int64
from abele.llm.config import MixtralConfig, ModelConfig

Rows = Callable[[ModelConfig], Int64]


@dataclass(frozen=True)
class TensorOrigin:
    """Origin of a parameter in a file.

    Attributes:
        name: The tensor's name; ``#`` is the layer's number. ``@`` is the expert's: their tensors are stacked.
        rows: Rows of it that are the parameter's, in order; None for all.
        transposed: True where the last two dimensions change places.
        plus: Added to all numbers.
    """

    name: str
    rows: Rows | None = None
    transposed: bool = False
    plus: float = 0.0


@dataclass(frozen=True)
class Naming:
    """One way to name tensors.

    Attributes:
        table: Origins by our names, whole or without ``.weight`` and ``.bias``.
        prefix: Beginning of their names that some files leave out.
        ignored: Pattern of tensors that hold nothing trained, such as masks and tables of angles.
    """

    table: Mapping[str, TensorOrigin]
    prefix: str = ""
    ignored: re.Pattern[str] = field(default=re.compile(r".*(rotary_emb|rope).*|.*\.attn\.(masked_)?bias"))

    def origin(self, parameter: str) -> TensorOrigin | None:
        """Origin of a parameter of ours; None for names that the scheme does not have."""
        number = re.search(r"\.(\d+)\.", parameter)
        plain = re.sub(r"\.\d+\.", ".#.", parameter, count=1)
        stem, _, suffix = plain.rpartition(".")
        found = self.table.get(plain)
        if found is None:
            found = self.table.get(stem)
            if found is None:
                return None
            found = TensorOrigin(f"{found.name}.{suffix}", found.rows, found.transposed, found.plus)
        name = found.name.replace("#", number[1]) if number else found.name
        return TensorOrigin(name, found.rows, found.transposed, found.plus)


def _joined(part: int) -> Rows:
    """Rows of queries (0), keys (1) or values (2) in a matrix of all three, one after the other."""

    def rows(config: ModelConfig) -> Int64:
        sizes = np.array([config.heads, config.kv_heads, config.kv_heads]) * config.head_size
        return np.arange(sizes[part]) + int(sizes[:part].sum())

    return rows


def _head_by_head(part: int) -> Rows:
    """Rows of queries, keys or values where each head has its three beside each other."""
    return lambda config: (
        np.arange(3 * config.heads * config.head_size).reshape(config.heads, 3, config.head_size)[:, part].reshape(-1)
    )


def _gate_or_up(part: int) -> Rows:
    """Rows of the gate (0) or of what it is multiplied with (1) in a matrix of both."""
    return lambda config: np.arange(config.wide) + part * config.wide


def _halves(heads: Callable[[ModelConfig], int]) -> Rows:
    """Rows of heads whose halves rotate together, out of rows with rotating neighbours."""

    def rows(config: ModelConfig) -> Int64:
        pairs = np.arange(heads(config) * config.head_size).reshape(heads(config), config.head_size // 2, 2)
        return pairs.swapaxes(1, 2).reshape(-1)

    return rows


def _table(layer: str, names: Mapping[str, str], **whole: str) -> dict[str, TensorOrigin]:
    """Origins of layers' parts, whose names have ``layer`` before them, and of the parts outside."""
    table = {f"layers.#.{ours}": TensorOrigin(layer + theirs) for ours, theirs in names.items()}
    return table | {ours: TensorOrigin(theirs) for ours, theirs in whole.items()}


_LLAMA = _table(
    "model.layers.#.",
    {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "attention.query_norm": "self_attn.q_norm",
        "attention.key_norm": "self_attn.k_norm",
        "wide_norm": "post_attention_layernorm",
        "wide.gate": "mlp.gate_proj",
        "wide.up": "mlp.up_proj",
        "wide.down": "mlp.down_proj",
    },
    embedding="model.embed_tokens",
    norm="model.norm",
    unembedding="lm_head",
)


def _norms_less_one(table: Mapping[str, TensorOrigin]) -> dict[str, TensorOrigin]:
    """Gemma's norms multiply by one more than what is stored."""
    return {ours: TensorOrigin(o.name, plus=1.0) if ours.endswith("norm") else o for ours, o in table.items()}


_GEMMA2 = _LLAMA | _table(
    "model.layers.#.",
    {
        "post_attention_norm": "post_attention_layernorm",
        "wide_norm": "pre_feedforward_layernorm",
        "post_wide_norm": "post_feedforward_layernorm",
    },
)


def _split(
    table: Mapping[str, TensorOrigin], joined: str, rows: Callable[[int], Rows], **how: bool
) -> dict[str, TensorOrigin]:
    """A table with queries, keys and values out of one tensor."""
    parts = enumerate(("query", "key", "value"))
    return dict(table) | {f"layers.#.attention.{part}": TensorOrigin(joined, rows(i), **how) for i, part in parts}


def _split_wide(table: Mapping[str, TensorOrigin], joined: str) -> dict[str, TensorOrigin]:
    """A table with the gate and what it is multiplied with out of one tensor."""
    parts = enumerate(("gate", "up"))
    return dict(table) | {f"layers.#.wide.{part}": TensorOrigin(joined, _gate_or_up(i)) for i, part in parts}


_PHI3 = _split_wide(_split(_LLAMA, "model.layers.#.self_attn.qkv_proj", _joined), "model.layers.#.mlp.gate_up_proj")

_EXPERTS = "model.layers.#.block_sparse_moe."
_MIXTRAL = _LLAMA | {
    "layers.#.wide.mixture.router.weight": TensorOrigin(_EXPERTS + "gate.weight"),
    "layers.#.wide.mixture.gate": TensorOrigin(_EXPERTS + "experts.@.w1.weight", transposed=True),
    "layers.#.wide.mixture.up": TensorOrigin(_EXPERTS + "experts.@.w3.weight", transposed=True),
    "layers.#.wide.mixture.down": TensorOrigin(_EXPERTS + "experts.@.w2.weight", transposed=True),
}

_GPT2_OUTSIDE = {
    "embedding": "transformer.wte",
    "norm": "transformer.ln_f",
    "unembedding": "lm_head",
}
_GPT2 = _split(
    _table(
        "transformer.h.#.",
        {"attention_norm": "ln_1", "wide_norm": "ln_2"},
        position_embedding="transformer.wpe",
        **_GPT2_OUTSIDE,
    )
    | {
        "layers.#.attention.out": TensorOrigin("transformer.h.#.attn.c_proj", transposed=True),
        "layers.#.wide.up": TensorOrigin("transformer.h.#.mlp.c_fc", transposed=True),
        "layers.#.wide.down": TensorOrigin("transformer.h.#.mlp.c_proj", transposed=True),
    },
    "transformer.h.#.attn.c_attn",
    _joined,
    transposed=True,
)

_GPTJ = _table(
    "transformer.h.#.",
    {
        "attention_norm": "ln_1",
        "attention.query": "attn.q_proj",
        "attention.key": "attn.k_proj",
        "attention.value": "attn.v_proj",
        "attention.out": "attn.out_proj",
        "wide.up": "mlp.fc_in",
        "wide.down": "mlp.fc_out",
    },
    **_GPT2_OUTSIDE,
)

_NEOX = _split(
    _table(
        "gpt_neox.layers.#.",
        {
            "attention_norm": "input_layernorm",
            "wide_norm": "post_attention_layernorm",
            "attention.out": "attention.dense",
            "wide.up": "mlp.dense_h_to_4h",
            "wide.down": "mlp.dense_4h_to_h",
        },
        embedding="gpt_neox.embed_in",
        norm="gpt_neox.final_layer_norm",
        unembedding="embed_out",
    ),
    "gpt_neox.layers.#.attention.query_key_value",
    _head_by_head,
)

_PHI = _table(
    "model.layers.#.",
    {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.dense",
        "wide.up": "mlp.fc1",
        "wide.down": "mlp.fc2",
    },
    embedding="model.embed_tokens",
    norm="model.final_layernorm",
    unembedding="lm_head",
)


def _t5_stack(ours: str, theirs: str, wide: int) -> dict[str, TensorOrigin]:
    table = {
        "own.norm": "layer.0.layer_norm",
        **{f"own.attention.{part}": f"layer.0.SelfAttention.{part[0]}" for part in ("query", "key", "value", "out")},
        "cross.norm": "layer.1.layer_norm",
        **{
            f"cross.attention.{part}": f"layer.1.EncDecAttention.{part[0]}" for part in ("query", "key", "value", "out")
        },
        "wide_norm": f"layer.{wide}.layer_norm",
        "wide.gate": f"layer.{wide}.DenseReluDense.wi_0",
        "wide.down": f"layer.{wide}.DenseReluDense.wo",
    }
    return {f"{ours}.#.{name}": TensorOrigin(f"{theirs}.block.#.{there}") for name, there in table.items()}


def _t5(*, gated: bool) -> dict[str, TensorOrigin]:
    up = "wi_1" if gated else "wi"
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias"
    return {
        **_t5_stack("encoder", "encoder", 1),
        **_t5_stack("layers", "decoder", 2),
        "encoder.#.wide.up": TensorOrigin(f"encoder.block.#.layer.1.DenseReluDense.{up}"),
        "layers.#.wide.up": TensorOrigin(f"decoder.block.#.layer.2.DenseReluDense.{up}"),
        "embedding": TensorOrigin("shared"),
        "encoder_bias.biases": TensorOrigin(f"encoder.{bias}"),
        "decoder_bias.biases": TensorOrigin(f"decoder.{bias}"),
        "encoder_norm": TensorOrigin("encoder.final_layer_norm"),
        "norm": TensorOrigin("decoder.final_layer_norm"),
        "unembedding": TensorOrigin("lm_head"),
    }


_GGUF = _table(
    "blk.#.",
    {
        "attention_norm": "attn_norm",
        "attention.query": "attn_q",
        "attention.key": "attn_k",
        "attention.value": "attn_v",
        "attention.out": "attn_output",
        "attention.query_norm": "attn_q_norm",
        "attention.key_norm": "attn_k_norm",
        "post_attention_norm": "post_attention_norm",
        "wide_norm": "ffn_norm",
        "post_wide_norm": "post_ffw_norm",
        "wide.gate": "ffn_gate",
        "wide.up": "ffn_up",
        "wide.down": "ffn_down",
    },
    embedding="token_embd",
    position_embedding="position_embd",
    norm="output_norm",
    unembedding="output",
)
_GGUF_NEIGHBOURS = _GGUF | {
    "layers.#.attention.query": TensorOrigin("blk.#.attn_q", _halves(lambda config: config.heads)),
    "layers.#.attention.key": TensorOrigin("blk.#.attn_k", _halves(lambda config: config.kv_heads)),
    "layers.#.wide.mixture.router.weight": TensorOrigin("blk.#.ffn_gate_inp.weight"),
    "layers.#.wide.mixture.gate": TensorOrigin("blk.#.ffn_gate_exps.weight", transposed=True),
    "layers.#.wide.mixture.up": TensorOrigin("blk.#.ffn_up_exps.weight", transposed=True),
    "layers.#.wide.mixture.down": TensorOrigin("blk.#.ffn_down_exps.weight", transposed=True),
}
_GGUF_JOINED = _split(_GGUF, "blk.#.attn_qkv", _joined)

HUGGING_FACE: dict[str, Naming] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "granite"), Naming(_LLAMA, "model.")),
    "gemma": Naming(_norms_less_one(_LLAMA), "model."),
    "gemma2": Naming(_norms_less_one(_GEMMA2), "model."),
    "phi3": Naming(_PHI3, "model."),
    "mixtral": Naming(_MIXTRAL, "model."),
    "gpt2": Naming(_GPT2, "transformer."),
    "gptj": Naming(_GPTJ, "transformer."),
    "gpt_neox": Naming(_NEOX, "gpt_neox."),
    "phi": Naming(_PHI, "model."),
    "t5": Naming(_t5(gated=False)),
    "t5 gated": Naming(_t5(gated=True)),
}
"""Schemes of Hugging Face's files by type of model."""

GGUF: dict[str, Naming] = {
    **dict.fromkeys(("llama", "granite"), Naming(_GGUF_NEIGHBOURS)),
    **dict.fromkeys(("qwen2", "qwen3", "gemma", "gemma2"), Naming(_GGUF)),
    "phi3": Naming(_split_wide(_GGUF_JOINED, "blk.#.ffn_up")),
    **dict.fromkeys(("gpt2", "gptneox"), Naming(_GGUF_JOINED)),
}
"""Schemes of GGUF's files by architecture. Those of ``llama`` and ``granite`` rotate neighbours."""


def expert_names(name: str, config: ModelConfig) -> list[str]:
    """Names of the tensors that are stacked: one per expert where the name has their number."""
    if "@" not in name or not isinstance(config, MixtralConfig):
        return [name]
    return [name.replace("@", str(expert)) for expert in range(config.experts)]
