"""A neural ODE: Runge-Kutta steps by ``scan``, its adjoint solved backwards by ``custom_vjp``."""

from functools import partial

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program

STEPS, DT = 10, 0.1


def field(params, y):
    return jnp.tanh(y @ params["w1"] + params["b1"]) @ params["w2"]


def rk4(f, y, dt):
    k1 = f(y)
    k2 = f(jax.tree.map(lambda a, b: a + 0.5 * dt * b, y, k1))
    k3 = f(jax.tree.map(lambda a, b: a + 0.5 * dt * b, y, k2))
    k4 = f(jax.tree.map(lambda a, b: a + dt * b, y, k3))
    return jax.tree.map(lambda a, p, q, r, s: a + dt / 6 * (p + 2 * q + 2 * r + s), y, k1, k2, k3, k4)


def integrate(f, y, dt):
    return jax.lax.scan(lambda y, _: (rk4(f, y, dt), None), y, None, length=STEPS)[0]


@jax.custom_vjp
def solve(params, y):
    return integrate(partial(field, params), y, DT)


def forward(params, y):
    end = solve(params, y)
    return end, (params, end)


def backward(saved, grad):
    params, end = saved

    def adjoint(state):
        y, a, _ = state
        made, pull = jax.vjp(field, params, y)
        by_params, by_y = pull(a)
        return made, jax.tree.map(jnp.negative, by_y), jax.tree.map(jnp.negative, by_params)

    start = end, grad, jax.tree.map(jnp.zeros_like, params)
    _, by_y, by_params = integrate(adjoint, start, -DT)
    return by_params, by_y


solve.defvjp(forward, backward)


def program(scale=1):
    width = 16 * scale
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "w1": jax.random.normal(keys[0], (2, width)),
        "b1": jnp.zeros(width),
        "w2": 0.3 * jax.random.normal(keys[1], (width, 2)),
    }
    y = jax.random.normal(keys[2], (3, 8 * scale, 2))

    def step(params, y):
        target = y @ jnp.array([[0.5, -0.8], [0.8, 0.5]])
        value, grads = jax.value_and_grad(lambda p: ((solve(p, y) - target) ** 2).mean())(params)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), value

    return Program(step, params, tuple((b,) for b in y), rtol=1e-4)
