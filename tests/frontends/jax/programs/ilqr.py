"""Model-predictive control of a pendulum by iLQR: Jacobians along a trajectory, Riccati backwards, a line of shots."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def moved(x, u):
    angle, speed = x
    speed = speed + 0.1 * (jnp.sin(angle) + u[0])
    return jnp.array([angle + 0.1 * speed, speed])


def program(scale=1):
    steps = 10 * scale
    cost_x, cost_u = jnp.diag(jnp.array([1.0, 0.1])), 0.1 * jnp.eye(1)

    def rollout(x, controls):
        return jax.lax.scan(lambda x, u: (moved(x, u),) * 2, x, controls)[1]

    def improved(start, controls):
        path = rollout(start, controls)
        states = jnp.concatenate([start[None], path[:-1]])
        a = jax.vmap(jax.jacfwd(moved))(states, controls)
        b = jax.vmap(jax.jacfwd(moved, argnums=1))(states, controls)

        def back(carry, x):
            s, big = carry
            a, b, state, u = x
            qx, qu = cost_x @ state + a.T @ s, cost_u @ u + b.T @ s
            qxx, quu, qux = cost_x + a.T @ big @ a, cost_u + b.T @ big @ b, b.T @ big @ a
            k, gain = -qu / quu[0, 0], -qux / quu[0, 0]
            return (qx + gain.T @ qu, qxx + gain.T @ qux), (k, gain)

        last = cost_x @ path[-1] * 10, cost_x * 10
        _, (k, gain) = jax.lax.scan(back, last, (a, b, states, controls), reverse=True)

        def forward(x, step):
            state, u, k, gain = step
            u = u + 0.5 * k + gain @ (x - state)
            return moved(x, u), u

        return jax.lax.scan(forward, start, (states, controls, k, gain))[1]

    def step(state):
        x, controls = state
        controls = jax.lax.fori_loop(0, 3, lambda _, u: improved(x, u), controls)
        return (moved(x, controls[0]), jnp.concatenate([controls[1:], jnp.zeros((1, 1))])), controls[0]

    return Program(step, (jnp.array([2.5, 0.0]), jnp.zeros((steps, 1))), ((),) * 3, rtol=5e-4)
