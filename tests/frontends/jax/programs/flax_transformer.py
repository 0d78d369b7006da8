"""Two pre-norm layers of Flax with AdamW of optax and gradient clipping."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))


class Transformer(nn.Module):
    width: int
    vocab: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocab, self.width)(tokens)
        x = x + self.param("positions", nn.initializers.normal(0.02), (tokens.shape[1], self.width))
        for _ in range(2):
            x = Block(4)(x)
        return nn.Dense(self.vocab)(nn.LayerNorm()(x))


def program(scale=1):
    width, length, vocab, batch = 16 * scale, 8 * scale, 31, 2 * scale
    model = Transformer(width, vocab)
    tokens = jax.random.randint(jax.random.key(1), (3, batch, length + 1), 0, vocab)
    params = model.init(jax.random.key(0), tokens[0, :, :-1])
    # Gradients of the keys' biases are zero but for rounding, which Adam would blow up to whole steps.
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-4))

    def step(state, tokens):
        params, opt = state

        def loss(params):
            logits = model.apply(params, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = chain.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), value

    return Program(step, (params, chain.init(params)), tuple((t,) for t in tokens), rtol=2e-3)
