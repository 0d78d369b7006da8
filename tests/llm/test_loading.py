"""Models out of files, beside transformers: its own folders, and GGUF files named by the package ``gguf``."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers as tf

from abele import poptorch
from abele.errors import AbeleError, FileFormatError, InvalidOptionError, TensorError
from abele.llm.config import LlamaConfig, ModelConfigError
from abele.llm.loading import WeightNamesError, describe, load
from abele.llm.models.causal import CausalModel
from abele.llm.models.t5 import T5
from llm.families import FAMILIES, _spread, t5_pair
from support.weight_files import write_gguf

TOKENS = torch.arange(22).reshape(2, 11) * 3
PHI3 = tf.Phi3Config(
    vocab_size=67,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=48,
    max_position_embeddings=64,
    original_max_position_embeddings=64,
    pad_token_id=0,
)
HF = {name: copy.deepcopy(family[0]) for name, family in FAMILIES.items()} | {"phi-3": PHI3}


def _oracle(name: str) -> Any:
    torch.manual_seed(0)
    oracle = tf.AutoModelForCausalLM.from_config(HF[name], attn_implementation="eager").eval()
    _spread(oracle)
    return oracle


@torch.no_grad()
def _same(oracle: Any, model: Any, tolerance: float = 1e-5) -> None:
    assert isinstance(model, CausalModel)
    torch.testing.assert_close(model.logits(TOKENS), oracle(TOKENS).logits, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", HF)
def test_load__folder_of_shards__logits_of_transformers(name: str, tmp_path: Path) -> None:
    oracle = _oracle(name)
    oracle.save_pretrained(tmp_path, max_shard_size="20KB")
    model, tokenizer = loaded = load(tmp_path)
    assert tokenizer is None
    assert name not in FAMILIES or loaded.config == FAMILIES[name][2]
    _same(oracle, model)


@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_load__t5__as_transformers(gated: bool, tmp_path: Path) -> None:
    oracle, ours = t5_pair(gated=gated)
    oracle.save_pretrained(tmp_path)
    model = load(tmp_path / "model.safetensors").model
    assert isinstance(model, T5)
    assert model.config == replace(ours.config, positions=512, tied_head=True)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "llama 3.1, tied": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "qwen 2": gguf.MODEL_ARCH.QWEN2,
    "qwen 3": gguf.MODEL_ARCH.QWEN3,
    "gemma 2": gguf.MODEL_ARCH.GEMMA2,
    "gpt-2": gguf.MODEL_ARCH.GPT2,
    "neox": gguf.MODEL_ARCH.GPTNEOX,
    "phi-3": gguf.MODEL_ARCH.PHI3,
}
_WITH_DIVISORS = {"llama 3.1, tied"}


def _tensors(name: str, oracle: Any) -> dict[str, Any]:
    """Tensors of a model as the converters of GGUF store them."""
    arch, names = ARCHITECTURES[name], gguf.get_tensor_name_map(ARCHITECTURES[name], 2)
    made: dict[str, Any] = {}
    for key, value in oracle.state_dict().items():
        if key == "lm_head.weight" and oracle.config.tie_word_embeddings:
            continue
        array = value.float().numpy()
        if key.endswith("experts.gate_up_proj"):
            root = "blk." + key.split(".")[2] + ".ffn_"
            made |= {
                root + f"{part}_exps.weight": half
                for part, half in zip(("gate", "up"), np.split(array, 2, 1), strict=True)
            }
            continue
        if key.endswith("experts.down_proj"):
            made["blk." + key.split(".")[2] + ".ffn_down_exps.weight"] = array
            continue
        stem = key.removesuffix(".weight").removesuffix(".bias")
        there = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if there is None:
            there = names.get_name(stem.replace("mlp.gate", "block_sparse_moe.gate")) + ".weight"
        if name in ("llama", "llama 3.1, tied", "mixtral", "granite") and ("q_proj" in key or "k_proj" in key):
            heads = len(array) // 8
            array = array.reshape(heads, 2, 4, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if arch == gguf.MODEL_ARCH.GEMMA2 and "norm" in key:
            array = array + 1
        if arch == gguf.MODEL_ARCH.GPT2 and array.ndim == 2 and "h." in key:
            array = array.T
        if "query_key_value" in key:
            array = array.reshape(4, 3, 8, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        made[there] = np.ascontiguousarray(array)
    return made


def _entries(name: str, oracle: Any) -> dict[str, Any]:
    """Metadata of a model as the converters of GGUF write them."""
    told, arch = oracle.config, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[name]]
    made = {
        "block_count": 2,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": getattr(told, "num_key_value_heads", 4),
        "rope.dimension_count": 8,
    }
    rotary = getattr(told, "rope_parameters", None) or {}
    made["rope.freq_base"] = float(rotary.get("rope_theta", 1e4))
    eps = 1e-5 if ARCHITECTURES[name] != gguf.MODEL_ARCH.PHI3 else told.rms_norm_eps
    made["attention.layer_norm_epsilon" if "gpt" in arch else "attention.layer_norm_rms_epsilon"] = eps
    more: dict[str, dict[str, Any]] = {
        "mixtral": {"expert_count": 4, "expert_used_count": 2},
        "granite": {"embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0, "attention.scale": 0.25},
        "gemma 2": {
            "attention.key_length": 8,
            "attention.sliding_window": 5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        "neox": {"rope.dimension_count": 4, "use_parallel_residual": True},
    }
    made |= more.get(name, {})
    return {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in made.items()}


def _gguf(folder: Path, name: str, oracle: Any) -> Path:
    entries = _entries(name, oracle)
    tensors = {key: (array, "F32") for key, array in _tensors(name, oracle).items()}
    return write_gguf(folder / "m.gguf", tensors, entries)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in _WITH_DIVISORS])
def test_load__gguf__logits_of_transformers(name: str, tmp_path: Path) -> None:
    if name == "gemma 2":
        HF[name].query_pre_attn_scalar = 8  # what the format takes for granted
    oracle = _oracle(name)
    model, _ = load(_gguf(tmp_path, name, oracle))
    _same(oracle, model)


def _divisors(oracle: Any) -> Any:
    """Divisors as Llama 3.1's converter stores them: plain frequencies over the model's."""
    plain = 1 / (oracle.config.rope_parameters["rope_theta"] ** (np.arange(0, 8, 2) / 8))
    return plain / oracle.model.rotary_emb.inv_freq.numpy()


def test_load__gguf_with_divisors__llama_3_1_or_refused(tmp_path: Path) -> None:
    HF["llama 3.1, tied"].rope_parameters["original_max_position_embeddings"] = 8192
    oracle = _oracle("llama 3.1, tied")
    tensors = {key: (array, "F32") for key, array in _tensors("llama 3.1, tied", oracle).items()}
    entries = _entries("llama 3.1, tied", oracle)
    divisors = _divisors(oracle)
    path = write_gguf(tmp_path / "m.gguf", tensors | {"rope_freqs.weight": (divisors, "F32")}, entries)
    model, _ = loaded = load(path)
    assert loaded.config.rotary.scaling.factor == pytest.approx(8)  # type: ignore[attr-defined]
    _same(oracle, model)
    wrong = write_gguf(tmp_path / "w.gguf", tensors | {"rope_freqs.weight": (divisors[::-1].copy(), "F32")}, entries)
    with pytest.raises(ModelConfigError, match="not those of Llama 3"):
        load(wrong)


@pytest.mark.parametrize("dtype", ["float16", torch.bfloat16])
def test_load__narrow_types__weights_rounded_once(dtype: Any, tmp_path: Path) -> None:
    oracle = _oracle("llama")
    oracle.save_pretrained(tmp_path)
    model = load(tmp_path, dtype=dtype).model
    kind = torch.float16 if dtype == "float16" else dtype
    assert {value.dtype for value in model.parameters()} == {kind}
    want = oracle.model.layers[1].mlp.up_proj.weight.to(kind)
    assert torch.equal(model.get_parameter("layers.1.wide.up.weight"), want)
    with pytest.raises(InvalidOptionError, match="type float8"):
        load(tmp_path, dtype="float8")
    with pytest.raises(InvalidOptionError, match="no scheme 'int3'"):
        load(tmp_path, quantise="int3")


def test_describe__before_anything_is_read__parameters_bytes_and_cache(tmp_path: Path) -> None:
    told = describe(_gguf(tmp_path, "qwen 2", oracle := _oracle("qwen 2")))
    count = sum(value.numel() for value in oracle.parameters())
    assert (told.parameters, told.stored_bytes, told.bytes_by_kind) == (count, 4 * count, {"F32": 4 * count})
    assert told.cache_bytes_per_token() == 2 * 2 * 2 * 8 * 2
    assert isinstance(told.config, LlamaConfig)
    assert f"qwen2: {count:,} parameters, 2 layers, width 32" in str(told)


CHANGED = {
    "model_type": ("mistrall", "did you mean 'mistral'?"),
    "rope_parameters": ({"rope_type": "yarn", "factor": 2.0}, "rotary scaling 'yarn' is not supported"),
    "num_attention_heads": (None, "must be a whole number above zero"),
    "vocab_size": (66, "'model.embed_tokens.weight' gives 'embedding.weight' the shape (67, 32)"),
    "num_hidden_layers": (10**9, "the configuration needs "),
    "attention_bias": (True, "8 tensors of a llama are missing"),
    "max_position_embeddings": (10**12, "context of 1,000,000,000,000 positions"),
    "hidden_act": ("snake", "no activation 'snake'"),
    "intermediate_size": (-48, "must be a whole number above zero"),
    "num_key_value_heads": (3, "cannot share 3 heads"),
}


@pytest.mark.parametrize("entry", CHANGED)
def test_load__configuration_that_does_not_fit__is_refused(entry: str, tmp_path: Path) -> None:
    _oracle("llama").save_pretrained(tmp_path)
    value, message = CHANGED[entry]
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(told | {entry: value}))
    with pytest.raises(AbeleError) as refused:
        load(tmp_path)
    assert message in str(refused.value)


def test_load__tensors_without_use_or_folder_without_configuration__are_refused(tmp_path: Path) -> None:
    oracle = _oracle("qwen 2")
    path = _gguf(tmp_path, "qwen 2", oracle)
    tensors = {key: (array, "F32") for key, array in _tensors("qwen 2", oracle).items()}
    write_gguf(path, tensors | {"blk.0.attn_query.weight": (np.zeros((2, 2)), "F32")}, _entries("qwen 2", oracle))
    with pytest.raises(WeightNamesError, match=r"1 tensors belong to nothing in a qwen2, first 'blk.0.attn_query"):
        load(path)
    del tensors["blk.1.ffn_up.weight"]
    write_gguf(path, tensors | {"blk.1.ffn_uq.weight": (np.zeros((2, 2)), "F32")}, _entries("qwen 2", oracle))
    with pytest.raises(WeightNamesError, match=r"first 'blk.1.ffn_up.weight'") as refused:
        load(path)
    assert "'blk.1.ffn_uq.weight'" in str(refused.value.remedy)
    for entry, message in (("rwkv", "architecture 'rwkv' are not read"), ("qwen3", "no qwen3.attention.head_count")):
        write_gguf(path, tensors, _entries("qwen 2", oracle) | {"general.architecture": entry})
        with pytest.raises(ModelConfigError, match=message.replace(".", r"\.").split(" are ")[0]):
            load(path)
    _oracle("llama").save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"no config\.json"):
        load(tmp_path / "hf")


@pytest.mark.parametrize("scheme", ["int8", "f143"])
@torch.no_grad()
def test_load__quantised__as_layers_made_of_the_dense_model(scheme: str, tmp_path: Path) -> None:
    oracle = _oracle("llama, linear, biases")
    oracle.save_pretrained(tmp_path)
    model = load(tmp_path, quantise=scheme).model
    dense = load(tmp_path).model
    assert isinstance(model, CausalModel)
    assert isinstance(dense, CausalModel)
    for name, layer in list(dense.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            dense.set_submodule(name, poptorch.QuantisedLinear.from_linear(layer, scheme))
    torch.testing.assert_close(model.logits(TOKENS), dense.logits(TOKENS))
    with pytest.raises(
        TensorError, match=r"layers\.0\.wide\.down\.weight cannot be quantised by 'int4-32': rows of 48"
    ):
        load(tmp_path, quantise="int4-32")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
@torch.no_grad()
def test_load__codes_as_stored__numbers_of_the_file(kind: str, tmp_path: Path) -> None:
    oracle = _oracle("llama 3.1, tied")
    tensors = {
        name: (array, kind if array.ndim == 2 and array.shape[1] % 32 == 0 else "F32")
        for name, array in _tensors("llama 3.1, tied", oracle).items()
    }
    path = write_gguf(tmp_path / "m.gguf", tensors, _entries("llama 3.1, tied", oracle))
    stored, dense = load(path, quantise="stored").model, load(path).model
    assert isinstance(stored, CausalModel)
    assert isinstance(dense, CausalModel)
    assert isinstance(stored.get_submodule("layers.1.attention.key"), poptorch.QuantisedLinear)
    assert isinstance(stored.get_submodule("layers.1.wide.down"), torch.nn.Linear)  # rows of 48 are no whole blocks
    assert stored.get_submodule("embedding").codes is stored.get_submodule("unembedding").codes
    torch.testing.assert_close(stored.logits(TOKENS), dense.logits(TOKENS), atol=1e-4, rtol=1e-4)
