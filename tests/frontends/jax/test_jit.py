"""``abele.jax.jit`` computes what ``jax.jit`` does, for whatever its arguments and results are."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele import jax as ajax
from abele.jax.__main__ import main as run_program


def equal(ours, theirs):
    """Trees are the same: structure, types and numbers."""
    ours, theirs = jax.block_until_ready((ours, theirs))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = map(jax.random.key_data, (a, b))
        if a.dtype != jax.dtypes.float0:
            wide = "c8" if np.iscomplexobj(b) else "f4"
            np.testing.assert_allclose(np.asarray(a, wide), np.asarray(b, wide), rtol=2e-6, atol=2e-6)


def same(fn, *args, **kwargs):
    ours, theirs = ajax.jit(fn)(*args, **kwargs), jax.jit(fn)(*args, **kwargs)
    equal(ours, theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert getattr(a, "weak_type", False) == getattr(b, "weak_type", False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Point:
    x: jax.Array
    y: jax.Array


def test_trees_of_every_kind_go_in_and_come_out():
    def f(point, options, *, scale):
        moved = Point(point.x * scale, point.y + options["by"])
        return moved, None, {"sum": point.x.sum() + point.y.sum(), "same": point.x, "three": 3, "empty": ()}

    point = Point(jnp.arange(3.0), np.ones(3, np.float32))
    same(f, point, {"by": jnp.ones(3), "none": None}, scale=2)


def test_numbers_are_weak_and_small_types_stay():
    def f(a, b, c, d, half, brain, byte, flag):
        return a + half, b * half, a + b, jnp.where(c, half, 0), brain * d, byte + 1, flag == False, half  # noqa: E712

    half, brain = jnp.ones(2, jnp.float16), jnp.full(2, 3, jnp.bfloat16)
    same(f, 2, 1.5, True, np.float32(3), half, brain, np.array([250, 255], np.uint8), np.array([True, False]))


def test_results_that_need_no_device_are_known():
    def f(x, y):
        return x, y, x, jnp.zeros((0, 3)), jnp.arange(3), x[:0].sum()

    same(f, jnp.ones((2, 2)), 4.0)
    same(lambda x: (), jnp.ones(2))
    same(lambda: jnp.ones(2))


def test_arrays_without_elements_are_arguments_and_results():
    same(lambda e, x: (e, jnp.concatenate([e, x]) * 2, e * 2, e.sum()), jnp.zeros((0, 3)), jnp.ones((2, 3)))


def test_one_array_as_two_arguments():
    x = jnp.arange(4.0)
    same(lambda a, b: a * 2 + b, x, x)


def test_gradients_of_integers_are_float0():
    same(jax.grad(lambda x, n: (x * n).sum(), argnums=(0, 1), allow_int=True), jnp.ones(3), jnp.arange(3))


def test_grad_vmap_and_functions_of_ours_are_traced():
    inner = ajax.jit(lambda x: jnp.tanh(x) * 2)

    def f(w, x):
        return ajax.grad(lambda w: ajax.vmap(inner)(x @ w).sum())(w)

    equal(ajax.jit(f)(jnp.ones((3, 2)), jnp.ones((4, 3))), jax.jit(f)(jnp.ones((3, 2)), jnp.ones((4, 3))))
    assert ajax.jit(inner).__name__ == "<lambda>"


def test_programs_are_found_by_types_trees_and_static_arguments():
    traced = []

    @ajax.jit(static_argnames="power")
    def f(x, power=2):
        traced.append(power)
        return x**power

    x = jnp.arange(1.0, 4.0)
    equal(f(x, power=3), x**3)
    equal(f(np.asarray(x), power=3), x**3)
    assert traced == [3]
    equal(f(x, 4), x**4)
    assert traced.pop() == 4
    f(x.astype(jnp.float16), power=3), f(2.0, power=3), f(3.0, power=3), f(x, power=2)
    assert traced == [3, 3, 3, 2]
    f.clear_cache()
    assert f.report is None
    f(x, power=2)
    assert traced[-1] == 2
    assert f.report.total_cycles > 0


def test_methods_are_functions_with_a_static_object():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @ajax.jit(static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    equal(Model(3.0)(jnp.ones(2)), jnp.full(2, 3.0))
    equal(Model(4.0)(jnp.ones(2)), jnp.full(2, 4.0))


def test_ahead_of_time():
    def f(w, x):
        return {"y": x @ w}

    lowered = ajax.jit(f).lower(jax.ShapeDtypeStruct((3, 2), "float32"), jnp.ones((4, 3)))
    assert "linear" in lowered.as_text()
    assert lowered.out_info["y"].shape == (4, 2)
    compiled = lowered.compile()
    equal(compiled(jnp.ones((3, 2)), jnp.ones((4, 3))), {"y": jnp.full((4, 2), 3.0)})
    costs, memory = compiled.cost_analysis(), compiled.memory_analysis()
    assert costs["flops"] == 2 * 4 * 3 * 2
    assert costs["cycles"] == compiled.report.total_cycles
    assert memory.argument_size_in_bytes == 4 * (6 + 12)
    assert memory.output_size_in_bytes == 32
    assert "linear" in compiled.as_text()
    assert compiled.executable.report.steps
    assert len(compiled.network.inputs) == 2
    assert ajax.jit(f).eval_shape(jnp.ones((3, 2)), jnp.ones((4, 3)))["y"].shape == (4, 2)
    assert ajax.jit(f).trace(jnp.ones((3, 2)), jnp.ones((4, 3))).jaxpr.eqns


def test_keys_go_in_and_come_out():
    def f(key, old):
        return key, old, key.shape

    key = jax.random.key(3)
    same(lambda k, keys: (k, keys[1], keys), key, jax.random.split(key, 3))


def test_complex_numbers_go_in_and_come_out():
    z = jnp.arange(4.0) + 1j
    same(lambda z, x: (z, z * x, x * 1j, (z * z.conj()).real, jnp.complex64(2j)), z, np.float32(3))
    step = ajax.jit(lambda z: z * 1j, donate_argnums=0)
    np.testing.assert_allclose(step(step(jnp.array(z))), -z)
    got = ajax.jit(lambda z: z * 2, device_iterations=2)(jnp.stack([z, -z]))
    np.testing.assert_allclose(got, jnp.stack([2 * z, -2 * z]))


def test_random_bits_are_jaxs_or_the_machines():
    draw, key = lambda k: jax.random.uniform(k, (64,)), jax.random.key(5)
    exact, fast = ajax.jit(draw)(key), ajax.jit(draw, random="device")
    np.testing.assert_array_equal(exact, draw(key))
    assert 0 <= fast(key).min() < 0.2 < 0.8 < fast(key).max() < 1
    np.testing.assert_array_equal(fast(key), fast(key))
    assert not np.array_equal(fast(key), exact)
    assert not np.array_equal(fast(key), fast(jax.random.key(6)))


def test_iterations_run_on_a_leading_axis():
    def f(total, x, scale, key):
        return total + x.sum(), (x * scale, 1.0, key)

    f_n = ajax.jit(f, device_iterations=3, donate_argnums=0)
    x = jnp.arange(12.0).reshape(3, 4)
    total, (scaled, ones, keys) = f_n(jnp.zeros(()), x, 2.0, jax.random.key(0))
    assert float(total) == float(x.sum())
    equal(scaled, x * 2)
    assert ones.tolist() == [1, 1, 1]
    assert keys.shape == (3,)
    total, _ = f_n(total, x, 2.0, jax.random.key(0))
    assert float(total) == 2 * float(x.sum())


def test_larger_arrays_that_a_function_closes_over_are_sent_once():
    table = jnp.arange(3000.0)
    same(lambda x: x + table[:3], jnp.ones(3))


PROGRAM = """
import functools, sys
import jax, jax.numpy as jnp

@functools.partial(jax.jit, static_argnums=1, donate_argnums=0)
def step(state, scale, x):
    return jax.tree.map(lambda s: s + scale * x.sum(), state)

@jax.jit
def mean(x):
    return x.mean()

state = {"a": jnp.zeros(2)}
for _ in range(2):
    state = step(state, 3, jnp.ones(4))
print(state["a"].tolist(), float(mean(state["a"])), type(step).__module__, type(jax.nn.relu).__module__, sys.argv[1:])
print(float(mean(jnp.ones(2))), len(jax.devices()))
"""


def test_programs_run_unchanged(tmp_path, monkeypatch, capsys):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr("sys.argv", ["abele.jax", str(program), "--more"])
    monkeypatch.setattr("sys.path", list(sys.path))
    before = jax.jit
    try:
        run_program()
    finally:
        ajax.uninstall()
    assert jax.jit is before
    first, second = capsys.readouterr().out.splitlines()
    assert first == "[24.0, 24.0] 24.0 abele.frontends.jax.jit jax._src.custom_derivatives ['--more']"
    assert second == "1.0 1"
    monkeypatch.setattr("sys.argv", ["abele.jax", "nothing.py"])
    with pytest.raises(SystemExit, match=r"there is no program 'nothing\.py'"):
        run_program()


@pytest.mark.slow
def test_wrappers_of_libraries_compile_what_is_the_users():
    equinox = pytest.importorskip("equinox")
    ajax.install(settings={"name": "installed"})
    try:
        model = equinox.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))

        @equinox.filter_jit
        def f(model, x):
            return jax.vmap(model)(x)

        got = f(model, jnp.ones((3, 2)))
        np.testing.assert_allclose(got, jax.vmap(model)(jnp.ones((3, 2))), rtol=1e-5)
        assert jax.jit(lambda x: x)(2.0) == 2
        assert jax.jit(lambda x: x + 1)._settings.name == "installed"
    finally:
        ajax.uninstall()


class TestInsideOfJax:
    """Functions of ours that JAX's own transformations meet."""

    @pytest.fixture
    def function(self):
        return ajax.jit(lambda x, n: (jnp.sin(x) * n, n + 1))

    def test_jit(self, function):
        x = jnp.arange(3.0)
        got = jax.jit(lambda x: function(x * 2, 3))(x)
        equal(got[0], jnp.sin(x * 2) * 3)
        assert int(got[1]) == 4

    def test_grad(self, function):
        x = jnp.arange(3.0)
        equal(jax.grad(lambda x: function(x, 3)[0].sum())(x), 3 * jnp.cos(x))

    def test_vmap(self, function):
        x = jnp.arange(6.0).reshape(2, 3)
        equal(jax.vmap(lambda x: function(x, 3)[0])(x), jnp.sin(x) * 3)
