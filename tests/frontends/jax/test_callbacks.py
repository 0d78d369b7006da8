"""Functions of the host in the middle of programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from abele import jax as ajax
from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.jaxpr import read_into
from abele.network import NetworkBuilder, Place

x = np.arange(3, dtype="f4")


def test_results_of_the_host_are_used():
    def f(x):
        a, b = jax.pure_callback(lambda v, n: (np.sin(v) * n, np.int32(7)), (x, jnp.int32(0)), x, 3.0)
        return a + b

    np.testing.assert_allclose(ajax.jit(f)(x), np.sin(x) * 3 + 7, rtol=1e-6)
    np.testing.assert_allclose(
        ajax.jit(jax.vmap(lambda v: jax.pure_callback(np.cos, v, v, vmap_method="sequential")))(x), np.cos(x), rtol=1e-6
    )


def test_effects_run_in_order_even_where_nothing_reads_them(capsys):
    seen = []

    @ajax.jit
    def f(x):
        jax.debug.print("x is {} and {y:.1f}", x, y=x.sum())
        io_callback(lambda v: seen.append(("first", float(v))), None, x[0])
        count = io_callback(lambda: np.int32(len(seen)), jax.ShapeDtypeStruct((), "int32"), ordered=True)
        jax.debug.callback(lambda v: seen.append(("second", float(v))), x[1])
        return count * 2

    assert int(f(x)) == 2
    assert int(f(x)) == 6
    assert seen == [("first", 0.0), ("second", 1.0)] * 2
    assert capsys.readouterr().out == "x is [0. 1. 2.] and 3.0\n" * 2


def test_effects_in_loops_and_branches(capsys):
    @ajax.jit
    def f(x, n):
        def trip(c, v):
            jax.debug.print("row {}", v)
            return c + v, c

        total, before = jax.lax.scan(trip, 0.0, x, reverse=True)

        def count(i):
            jax.debug.print("i {}", i)
            return i + 1

        n = jax.lax.while_loop(lambda i: i < n, count, 0)
        jax.lax.cond(n > 1, lambda: jax.debug.print("many"), lambda: jax.debug.print("few"))
        jax.lax.switch(n, [lambda: None, lambda: jax.debug.print("one"), lambda: jax.debug.print("two")])
        return total, before

    total, before = f(x, 2)
    assert float(total) == 3
    assert before.tolist() == [3, 2, 0]
    shown = "row 2.0\nrow 1.0\nrow 0.0\ni 0\ni 1\nmany\ntwo\n"
    assert capsys.readouterr().out == shown
    f(x, 1)
    assert capsys.readouterr().out.endswith("i 0\nfew\none\n")


def test_each_iteration_and_replica_calls_the_host(capsys):
    def f(v):
        jax.debug.print("{}", v)
        return v

    ajax.jit(f, device_iterations=3)(x)
    assert capsys.readouterr().out == "0.0\n1.0\n2.0\n"
    ajax.pmap(f)(x[:2])
    assert sorted(capsys.readouterr().out.split()) == ["0.0", "1.0"]


def test_what_a_function_of_the_host_raises_comes_out():
    def fail(v):
        raise KeyError("mine")

    f = ajax.jit(lambda v: jax.pure_callback(fail, v, v))
    with pytest.raises(KeyError, match="mine"):
        f(x)


def test_results_of_another_shape_are_refused():
    f = ajax.jit(lambda v: jax.pure_callback(lambda v: v[:2], v, v))
    with pytest.raises(TypeMismatchError, match=r"gave shape \[2\], and its caller said \[3\]"):
        f(x)


def test_results_in_a_pipeline_are_refused():
    net = NetworkBuilder()
    value = net.input((3,), "f32", "x")
    jaxpr = jax.make_jaxpr(lambda v: jax.pure_callback(np.sin, v, v))(x)
    with net.at(place=Place(ipu=1, pipeline_stage=1)), pytest.raises(UnsupportedOpError, match="stage of a pipeline"):
        read_into(net, jaxpr, [value])


def test_effects_in_a_condition_are_refused():
    def holds(c):
        jax.debug.print("{}", c)
        return c < 3

    with pytest.raises(UnsupportedOpError, match="calls the host in its condition"):
        ajax.jit(lambda c: jax.lax.while_loop(holds, lambda c: c + 1, c))(0)
