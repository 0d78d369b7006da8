"""A convolutional network of Flax with batch norms, whose running statistics are part of the state."""

import flax.linen as nn
import jax
import optax

from frontends.jax.programs.program import Program


class Cnn(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, train):
        for n, factor in enumerate((1, 2)):
            x = nn.Conv(factor * self.features, (3, 3), strides=1 + n)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def program(scale=1):
    model, size = Cnn(8 * scale), 8 * scale
    x = jax.random.normal(jax.random.key(0), (3, 4 * scale, size, size, 3))
    y = jax.random.randint(jax.random.key(1), x.shape[:2], 0, 10)
    variables = model.init(jax.random.key(2), x[0], train=True)
    optimiser = optax.sgd(0.05, momentum=0.9)

    def step(state, x, y):
        params, stats, opt = state

        def loss(params):
            logits, changed = model.apply({"params": params, "batch_stats": stats}, x, True, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), changed["batch_stats"]

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), stats, opt), value

    state = variables["params"], variables["batch_stats"], optimiser.init(variables["params"])
    return Program(step, state, tuple(zip(x, y, strict=True)), rtol=2e-4)
