"""An LSTM of Haiku, unrolled by ``scan``, with an MLP on its last state."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    steps, batch, width = 6 * scale, 4 * scale, 8 * scale

    def net(x):
        core = hk.LSTM(width)
        outs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.nets.MLP([width, 1])(outs[-1])[:, 0]

    model = hk.without_apply_rng(hk.transform(net))
    x = jax.random.normal(jax.random.key(0), (3, steps, batch, 5))
    y = jnp.sin(x.sum((1, 3)))
    params = model.init(jax.random.key(1), x[0])
    optimiser = optax.adam(1e-2)

    def step(state, x, y):
        params, opt = state
        value, grads = jax.value_and_grad(lambda p: ((model.apply(p, x) - y) ** 2).mean())(params)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    return Program(step, (params, optimiser.init(params)), tuple(zip(x, y, strict=True)), rtol=2e-4)
