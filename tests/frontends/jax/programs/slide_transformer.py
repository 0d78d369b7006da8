"""The transformer of a talk on the IPU: a loop over heads, rows standardised by ``vmap``."""

from types import SimpleNamespace as Tree

import jax
import jax.numpy as jnp
from jax import vmap

from frontends.jax.programs.program import Program


def linear(params, x):
    return x @ params["weights"] + params["bias"]


def elementwise_linear(params, x):
    return params["gain"] * x + params["bias"]


def standardize(x, eps=1e-5):
    return (x - x.mean()) / (x.std() + eps)


def transformer(cfg, params, x):
    length, _ = x.shape[0], 0
    mask = jnp.triu(jnp.full((length, length), -1e4), 1)
    embeddings = cfg.lambda_e * params["embeddings"][x, :]
    embeddings += cfg.lambda_pe * params["positional_encodings"][:length, :]
    for layer in params["layers"]:
        t1 = vmap(standardize)(embeddings)
        t1 = elementwise_linear(layer["norm_self_attn"], t1)
        for head in layer["heads"]:
            query = linear(head["query"], t1)
            key = linear(head["key"], t1)
            score = query @ key.T + mask
            attn = jax.nn.softmax(cfg.tau * score, axis=1)
            value = linear(head["value"], t1)
            self_attn = attn @ value
            embeddings += self_attn
        t2 = vmap(standardize)(embeddings)
        t2 = elementwise_linear(layer["norm_ff"], t2)
        t2 = linear(layer["ffn1"], t2)
        t2 = jax.nn.relu(t2)
        t2 = linear(layer["ffn2"], t2)
        embeddings += t2
    embeddings = vmap(standardize)(embeddings)
    embeddings = elementwise_linear(params["pre_output_norm"], embeddings)
    return linear(params["output"], embeddings)


def program(scale=1):
    length, width, heads, inner, vocab, layers = 16 * scale, 16 * scale, 2, 32 * scale, 29, 2
    cfg = Tree(lambda_e=1.0, lambda_pe=0.5, tau=(width // heads) ** -0.5)
    keys = iter(jax.random.split(jax.random.key(0), 200))

    def weights(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    def dense(rows, columns):
        return {"weights": weights(rows, columns), "bias": jnp.zeros(columns)}

    def norm():
        return {"gain": jnp.ones(width), "bias": jnp.zeros(width)}

    def head():
        size = width // heads
        return {"query": dense(width, size), "key": dense(width, size), "value": dense(width, width)}

    def layer():
        return {
            "norm_self_attn": norm(),
            "heads": [head() for _ in range(heads)],
            "norm_ff": norm(),
            "ffn1": dense(width, inner),
            "ffn2": dense(inner, width),
        }

    params = {
        "embeddings": weights(vocab, width),
        "positional_encodings": weights(length, width),
        "layers": [layer() for _ in range(layers)],
        "pre_output_norm": norm(),
        "output": dense(width, vocab),
    }

    def loss(params, tokens):
        log_p = jax.nn.log_softmax(transformer(cfg, params, tokens[:-1]))
        return -jnp.take_along_axis(log_p, tokens[1:, None], 1).mean()

    def step(params, tokens):
        batch = jax.vmap(loss, (None, 0))
        value, grads = jax.value_and_grad(lambda p: batch(p, tokens).mean())(params)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value

    tokens = jax.random.randint(jax.random.key(1), (3, 2, length + 1), 0, vocab)
    return Program(step, params, tuple((t,) for t in tokens))
