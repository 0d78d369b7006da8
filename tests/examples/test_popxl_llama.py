"""The decoder of ``examples/popxl/llama.py`` gives the logits and tokens of PyTorch, however it lies on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import popxl
from support.pages import load_script

torch = pytest.importorskip("torch", reason="the oracle of the decoder is PyTorch")

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "popxl"
llama = load_script(SCRIPTS / "llama.py", "popxl_llama")


class TorchLlama(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Llama in float64 with weights under the names of Hugging Face, without a cache."""

    def __init__(self, config: Any, arrays: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.w = {name: torch.tensor(np.asarray(array)).double() for name, array in arrays.items()}

    def norm(self, name: str, x: Any) -> Any:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.config.eps)

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.w[f"{name}.weight"].T

    def turned(self, x: Any) -> Any:
        """Rotary embeddings of [batch, heads, tokens, features], whose pairs are features of the two halves."""
        half = x.shape[-1] // 2
        speeds = self.config.base ** (-torch.arange(half).double() / half)
        angles = torch.arange(x.shape[2]).double()[:, None] * speeds
        a, b = x.split(half, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, ids: Any) -> Any:
        """Logits [batch, tokens, vocabulary]."""
        c = self.config
        x = self.w["model.embed_tokens.weight"][ids]
        for n in range(c.layers):
            name = f"model.layers.{n}"
            h = self.norm(f"{name}.input_layernorm", x)
            q, k, v = (
                self.linear(f"{name}.self_attn.{which}_proj", h).unflatten(-1, (-1, c.head)).transpose(1, 2)
                for which in "qkv"
            )
            mixed = torch.nn.functional.scaled_dot_product_attention(
                self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True
            )
            x = x + self.linear(f"{name}.self_attn.o_proj", mixed.transpose(1, 2).flatten(2))
            h = self.norm(f"{name}.post_attention_layernorm", x)
            gate = torch.nn.functional.silu(self.linear(f"{name}.mlp.gate_proj", h))
            x = x + self.linear(f"{name}.mlp.down_proj", gate * self.linear(f"{name}.mlp.up_proj", h))
        return self.linear("lm_head", self.norm("model.norm", x))


def check(config: Any, words: Any, found: Any, logits: list[Any], *, rtol: float = 1e-4) -> None:
    """Compare tokens, and the logits behind each, with PyTorch's."""
    oracle = TorchLlama(config, arrays_of(config))
    for n, each in enumerate(logits):
        expected = oracle(torch.tensor(words))[:, -1].numpy()
        np.testing.assert_allclose(each, expected, rtol=0, atol=rtol * np.abs(expected).max(), err_msg=f"{n}")
        np.testing.assert_array_equal(found[:, n], expected.argmax(-1))
        words = np.concatenate([words, found[:, n : n + 1]], 1)


def arrays_of(config: Any) -> dict[str, Any]:
    return {name: array.astype(config.dtype.as_numpy()) for name, array in llama.random_arrays(config).items()}


def test_llama__weights_streamed_or_on_the_chip__generates_as_torch(capsys: pytest.CaptureFixture[str]) -> None:
    config = llama.Config()
    made = llama.main(config, tokens=10)
    for _, found, logits in made.values():
        assert found.shape == (1, 10)
        check(config, np.arange(6)[None], found, logits)
    streamed, resident = (made[name][0].decode.session.report for name in ("streamed", "resident"))
    assert resident.total_cycles < streamed.total_cycles
    # Six variables of a layer in one loop, and three around it: one load each, whatever the number of layers.
    assert [str(p) for p in streamed.steps["partner"]].count("streaming memory") == 9
    assert [str(p) for p in resident.steps["partner"]].count("streaming memory") == 0
    assert "streaming memory 0%" in capsys.readouterr().out.splitlines()[-1]


SHARED = {"tensor_parallel": 2, "data_parallel": 2, "vocabulary": 93, "streams_cache": True}
VARIANTS = [
    pytest.param(SHARED, id="two models, rows that fill up the vocabulary, a cache in streaming memory"),
    *(
        pytest.param(sizes, marks=pytest.mark.slow, id=name)
        for name, sizes in {
            "one replica, one head of keys": {"tensor_parallel": 1, "kv_heads": 1},
            "two replicas, as many heads of keys as of queries": {"tensor_parallel": 2, "kv_heads": 8},
            "batch of two": {"batch": 2},
            "two models with batches of two": {"tensor_parallel": 2, "data_parallel": 2, "batch": 2},
            "weights and batch of two on the chip": {"batch": 2, "streams_weights": False, "vocabulary": 97},
            "half precision": {"dtype": popxl.float16},
        }.items()
    ),
]


@pytest.mark.parametrize("sizes", VARIANTS)
def test_llama__laid_out_otherwise__generates_as_torch(sizes: dict[str, Any]) -> None:
    config = llama.Config(layers=2, **sizes)
    generator = llama.Generator(config, 8, arrays_of(config))
    # The prompt is shorter than what the program takes, and each sequence is another.
    words = np.random.default_rng(1).integers(0, config.vocabulary, (config.batch * config.data_parallel, 6))
    check(config, words, *generator.generate(words, 3), rtol=1e-2 if config.dtype is popxl.float16 else 1e-4)


@pytest.mark.slow
def test_llama__more_layers_and_caches_in_streaming_memory__take_no_more_of_the_chip() -> None:
    few, many = (llama.Program(llama.Config(layers=layers, streams_cache=True), 1).session.report for layers in (2, 8))
    assert few.memory.total_bytes == many.memory.total_bytes
    assert few.total_cycles < many.total_cycles
