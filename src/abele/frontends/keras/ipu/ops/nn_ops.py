"""``nn_ops``: activations and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from abele.frontends.keras.private import keras


def gelu(x: Any, approximate: bool = True, name: str | None = None) -> Any:
    """Gaussian error linear unit; approximated by a tanh unless told otherwise."""
    return jax.nn.gelu(jnp.asarray(x), approximate=approximate)


def swish(x: Any, name: str | None = None) -> Any:
    """``x`` times its sigmoid."""
    return jax.nn.silu(jnp.asarray(x))


def hard_sigmoid(x: Any, name: str | None = None) -> Any:
    """``x / 6 + 1 / 2`` between 0 and 1."""
    return jax.nn.hard_sigmoid(jnp.asarray(x))


def hard_swish(x: Any, name: str | None = None) -> Any:
    """``x`` times its hard sigmoid."""
    return jax.nn.hard_silu(jnp.asarray(x))


def softmax(x: Any, stable: bool = False, name: str | None = None) -> Any:
    """Softmax along the last dimension; the largest element is always subtracted first."""
    return jax.nn.softmax(jnp.asarray(x))


def multi_conv(func: Callable[..., Any] | None = None, options: Any = None) -> Any:
    """The function itself: convolutions that can run together are found by the compiler."""
    return (lambda f: f) if func is None else func


def ctc_loss(
    labels: Any, logits: Any, label_length: Any, logit_length: Any, blank_index: int = 0, name: str | None = None
) -> Any:
    """Connectionist temporal classification loss of logits [time, batch, classes]: f32[batch].

    Args:
        labels: Classes [batch, longest label].
        logits: Numbers before a softmax.
        label_length: Length of each label.
        logit_length: Times of each sample.
        blank_index: Class of no label.
        name: Not used.
    """
    by_batch = jnp.swapaxes(jnp.asarray(logits), 0, 1)
    return keras.ops.ctc_loss(labels, by_batch, label_length, logit_length, mask_index=blank_index)


ctc_loss_v2 = ctc_loss


def ctc_loss_with_log_probs(
    labels: Any, data: Any, label_length: Any, data_length: Any, blank_index: int = 0, name: str | None = None
) -> Any:
    """:func:`ctc_loss` of log probabilities, which are logits too."""
    return ctc_loss(labels, data, label_length, data_length, blank_index, name)
