"""``tf.random`` and ``tf.nn``: candidates of classes, and losses of sampled softmax and noise contrast.

Distinct candidates are the ``num_sampled`` largest of the classes' log probabilities plus Gumbel noise, which has the
distribution of drawing until so many differ. Expected counts are those of the number of draws that makes them that
many on average.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..randomness import draw_key
from ..tensors import tensor_of
from .nn import NN
from .random import RANDOM

Candidates = namedtuple("Candidates", ["sampled_candidates", "true_expected_count", "sampled_expected_count"])
_HALVINGS = 60
"""Steps of the search for the number of draws."""


def _draws(probabilities: Any, count: int) -> float:
    """Number of draws among which so many classes are expected."""
    low, high = float(count), 1e9
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if -np.expm1(middle * np.log1p(-probabilities)).sum() < count else (low, middle)
    return high


def _sampled(true_classes: Any, count: int, weights: Any, unique: bool, seed: Any) -> Candidates:
    probabilities = np.asarray(weights, np.float64)
    probabilities = probabilities / probabilities.sum()
    logs = jnp.asarray(np.log(np.maximum(probabilities, 1e-30)), jnp.float32)
    if unique:
        noisy = logs + jax.random.gumbel(draw_key(seed), logs.shape)
        drawn = jax.lax.top_k(noisy, count)[1]
        everything = count >= len(probabilities)
        expected = np.ones_like(probabilities)
        if not everything:
            expected = -np.expm1(_draws(probabilities, count) * np.log1p(-probabilities))
    else:
        drawn, expected = jax.random.categorical(draw_key(seed), logs, shape=(count,)), probabilities * count
    counts = jnp.asarray(expected, jnp.float32)
    return Candidates(drawn.astype(jnp.int32), counts[tensor_of(true_classes)], counts[drawn])


@RANDOM("uniform_candidate_sampler")
def _uniform(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: Any = None, name: Any = None
) -> Any:
    return _sampled(true_classes, num_sampled, np.ones(range_max), unique, seed)


@RANDOM("log_uniform_candidate_sampler")
def _log_uniform(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: Any = None, name: Any = None
) -> Any:
    return _sampled(true_classes, num_sampled, np.log1p(1 / (1 + np.arange(range_max))), unique, seed)


@RANDOM("fixed_unigram_candidate_sampler")
def _fixed_unigram(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: Any = None,
    name: Any = None,
) -> Any:
    weights = np.zeros(range_max)
    weights[num_reserved_ids:] = np.asarray(unigrams, np.float64) ** distortion
    return _sampled(true_classes, num_sampled, weights, unique, seed)


@NN("all_candidate_sampler")
def _all(true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: Any = None, name: Any = None) -> Any:
    classes = jnp.arange(num_sampled, dtype=jnp.int32)
    return Candidates(classes, jnp.ones(jnp.shape(true_classes)), jnp.ones(num_sampled))


for _name in ("uniform_candidate_sampler", "log_uniform_candidate_sampler", "fixed_unigram_candidate_sampler"):
    NN[_name] = RANDOM[_name]


def _logits(table: Any, shift: Any, labels: Any, features: Any, candidates: Any, *, hits: bool) -> tuple[Any, Any]:
    """Logits of true and sampled classes, less the logarithm of expected counts, and their targets."""
    targets = tensor_of(labels).astype(jnp.int32)
    drawn, true_count, drawn_count = (jax.lax.stop_gradient(tensor_of(part)) for part in candidates)
    true = jnp.einsum("nd,ntd->nt", features, table[targets]) + shift[targets] - jnp.log(true_count)
    sampled = features @ table[drawn].T + shift[drawn] - jnp.log(drawn_count)
    if not hits:
        hit = jnp.any(targets[:, :, None] == drawn[None, None], 1)
        sampled = jnp.where(hit, sampled - jnp.finfo(sampled.dtype).max, sampled)
    logits = jnp.concatenate([true, sampled], 1)
    share = jnp.concatenate([jnp.full(true.shape, 1 / true.shape[1]), jnp.zeros(sampled.shape)], 1)
    return logits, share


def _loss(of: Callable[[Any, Any], Any], removes: bool) -> Callable[..., Any]:
    def loss(
        weights: Any,
        biases: Any,
        labels: Any,
        inputs: Any,
        num_sampled: int,
        num_classes: int,
        num_true: int = 1,
        sampled_values: Any = None,
        remove_accidental_hits: bool = removes,
        seed: Any = None,
        name: str | None = None,
    ) -> Any:
        found = sampled_values
        if found is None:
            found = _log_uniform(labels, num_true, num_sampled, True, num_classes, seed)
        table = jnp.concatenate(list(weights)) if isinstance(weights, list | tuple) else tensor_of(weights)
        rows = _logits(table, tensor_of(biases), labels, tensor_of(inputs), found, hits=not remove_accidental_hits)
        return of(*rows)

    return loss


def _softmax_loss(logits: Any, share: Any) -> Any:
    return -jnp.sum(jnp.where(share > 0, share * jax.nn.log_softmax(logits), 0), 1)


def _noise_loss(logits: Any, share: Any) -> Any:
    return jnp.sum(jax.nn.softplus(logits) - share * logits, 1)


NN("sampled_softmax_loss")(_loss(_softmax_loss, True))
NN("nce_loss")(_loss(_noise_loss, False))
