"""A clipped policy gradient: advantages by a reversed ``scan``, an actor and a critic with one optimiser."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    steps, actors, width, actions = 8 * scale, 4 * scale, 8 * scale, 3
    keys = jax.random.split(jax.random.key(0), 9)
    params = {
        "body": jax.random.normal(keys[0], (4, width)),
        "actor": 0.1 * jax.random.normal(keys[1], (width, actions)),
        "critic": jax.random.normal(keys[2], (width, 1)) * width**-0.5,
    }
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3, eps=1e-5))

    def net(params, seen):
        hidden = jnp.tanh(seen @ params["body"])
        return jax.nn.log_softmax(hidden @ params["actor"]), (hidden @ params["critic"])[..., 0]

    def advantages(values, rewards, done):
        def back(carry, x):
            gae, following = carry
            value, reward, done = x
            delta = reward + 0.99 * following * (1 - done) - value
            gae = delta + 0.99 * 0.95 * (1 - done) * gae
            return (gae, value), gae

        start = jnp.zeros_like(values[-1]), values[-1]
        return jax.lax.scan(back, start, (values, rewards, done), reverse=True)[1]

    def loss(params, seen, action, old, rewards, done):
        log_p, values = net(params, seen)
        gae = advantages(jax.lax.stop_gradient(values), rewards, done)
        gae_scaled = (gae - gae.mean()) / (gae.std() + 1e-8)
        chosen = jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]
        ratio = jnp.exp(chosen - old)
        policy = -jnp.minimum(ratio * gae_scaled, jnp.clip(ratio, 0.8, 1.2) * gae_scaled).mean()
        entropy = -(jnp.exp(log_p) * log_p).sum(-1).mean()
        fit = ((values - jax.lax.stop_gradient(gae + values)) ** 2).mean()
        return policy + 0.5 * fit - 0.01 * entropy

    def step(state, *batch):
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    shape = (3, steps, actors)
    batches = zip(
        jax.random.normal(keys[3], (*shape, 4)),
        jax.random.randint(keys[4], shape, 0, actions),
        jnp.log(jax.random.uniform(keys[5], shape, minval=0.2, maxval=0.5)),
        jax.random.normal(keys[6], shape),
        jax.random.bernoulli(keys[7], 0.1, shape).astype(jnp.float32),
        strict=True,
    )
    return Program(step, (params, optimiser.init(params)), tuple(batches), rtol=2e-3)
