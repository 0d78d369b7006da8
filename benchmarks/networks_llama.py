"""A Llama-like block from JAX and from PyTorch: RMS norms, rotary positions, SwiGLU, a head, and cross entropy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax import lax
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, SEQUENCE, WIDE, VOCABULARY, EPS = 1024, 16, 256, 2816, 4096, 1e-6
"""A quarter of the width of Llama 2 with 7 billion parameters. Source: Touvron et al. 2023."""
EACH = HIDDEN // HEADS
HIDDEN_SCORE = -1e4
SHAPES = dict.fromkeys(("query", "key", "value", "out"), (HIDDEN, HIDDEN))
SHAPES |= {"gate": (HIDDEN, WIDE), "up": (HIDDEN, WIDE), "down": (WIDE, HIDDEN), "head": (HIDDEN, VOCABULARY)}
NORMS = ("norm1", "norm2", "norm3")


def angles() -> tuple[Any, Any]:
    """Cosines and sines by position and element of a head."""
    turns = np.arange(SEQUENCE)[:, None] / 10000 ** (np.arange(0, EACH, 2) / EACH)
    turns = np.concatenate([turns, turns], -1)[None, :, None]
    return np.cos(turns).astype(np.float16), np.sin(turns).astype(np.float16)


# --- JAX -------------------------------------------------------------------------------------------------------------


def weights() -> dict[str, Any]:
    """Zeros in the shapes of all weights."""
    matrices = {name: jnp.zeros(shape, jnp.float16) for name, shape in SHAPES.items()}
    return matrices | {name: jnp.zeros(HIDDEN, jnp.float16) for name in NORMS}


def _rms_norm(x: Any, gain: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + EPS)).astype(x.dtype) * gain


def _rotated(x: Any) -> Any:
    cosine, sine = angles()
    return x * cosine + jnp.concatenate([-x[..., EACH // 2 :], x[..., : EACH // 2]], -1) * sine


def logits(weights: dict[str, Any], x: Any) -> Any:
    """Scores of the vocabulary at each position."""
    inner = _rms_norm(x, weights["norm1"])
    query, key, value = ((inner @ weights[n]).reshape(1, SEQUENCE, HEADS, EACH) for n in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", _rotated(query) * EACH**-0.5, _rotated(key))
    seen = jnp.tril(jnp.ones((SEQUENCE, SEQUENCE), bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, jnp.asarray(HIDDEN_SCORE, x.dtype)))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", shares, value).reshape(x.shape) @ weights["out"]
    inner = _rms_norm(x, weights["norm2"])
    x = x + (jax.nn.silu(inner @ weights["gate"]) * (inner @ weights["up"])) @ weights["down"]
    return _rms_norm(x, weights["norm3"]) @ weights["head"]


def step(state: tuple[dict[str, Any], Any], labels: Any, rate: float) -> tuple[Any, Any]:
    """One step of SGD on weights and on what enters; also the loss."""

    def loss(weights: dict[str, Any], x: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits(weights, x), labels).mean()

    value, grads = jax.value_and_grad(loss, (0, 1))(*state)
    return jax.tree.map(lambda w, g: w - jnp.asarray(rate, w.dtype) * g, state, grads), value


# --- PyTorch ---------------------------------------------------------------------------------------------------------


class TorchLlama(nn.Module):
    """The same in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in SHAPES.items()})
        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN, eps=EPS) for _ in NORMS])
        for name, table in zip(("cosine", "sine"), angles(), strict=True):
            self.register_buffer(name, torch.from_numpy(table))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.cosine + torch.cat([-x[..., EACH // 2 :], x[..., : EACH // 2]], -1) * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        do, inner = self.layers, self.norms[0](x)
        query, key, value = (do[n](inner).reshape(1, SEQUENCE, HEADS, EACH) for n in ("query", "key", "value"))
        scores = (self._rotated(query) * EACH**-0.5).transpose(1, 2) @ self._rotated(key).permute(0, 2, 3, 1)
        seen = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril()
        shares = torch.where(seen, scores, HIDDEN_SCORE).softmax(-1)
        x = x + do["out"]((shares @ value.transpose(1, 2)).transpose(1, 2).reshape(x.shape))
        inner = self.norms[1](x)
        x = x + do["down"](functional.silu(do["gate"](inner)) * do["up"](inner))
        return do["head"](self.norms[2](x))


class TorchLoss(nn.Module):
    """Cross entropy of the block's scores; what enters the block is trained too."""

    def __init__(self) -> None:
        super().__init__()
        self.block = TorchLlama()
        self.x = nn.Parameter(torch.zeros(1, SEQUENCE, HIDDEN))

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.block(self.x).reshape(SEQUENCE, VOCABULARY), labels.reshape(SEQUENCE))
