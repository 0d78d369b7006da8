"""Jaxprs become networks that compute what JAX computes."""

import jax
import jax.numpy as jnp
import numpy as np

from frontends.jaxpr.jaxpr_kit import check


def _mlp(params, batch, labels):
    hidden = jax.nn.relu(batch @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"]
    picked = jnp.sum(jax.nn.log_softmax(logits) * labels, axis=-1)
    return -picked.mean()


def test_loss_and_gradient_of_an_mlp_are_those_of_jax():
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.normal(size=(6, 8)).astype("f4"),
        "b1": rng.normal(size=8).astype("f4"),
        "w2": rng.normal(size=(8, 3)).astype("f4"),
    }
    batch = rng.normal(size=(5, 6)).astype("f4")
    labels = np.eye(3, dtype="f4")[[0, 1, 2, 1, 0]]
    check(jax.value_and_grad(_mlp), params, batch, labels, native=True)
