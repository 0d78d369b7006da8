"""Errors of functions and arguments that cannot be compiled or called: kind, place in the program, and remedy."""

import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele import jax as ajax
from abele.errors import (
    AbeleError,
    BatchSizeError,
    ElementRangeError,
    InvalidOptionError,
    OutOfMemoryError,
    SignatureError,
    TypeMismatchError,
    UnsupportedOpError,
)
from abele.frontends.jax.jit import check_host

x = np.arange(3, dtype="f4")


def _raises(error, upstream, match, fn, *args, here=True, **kwargs):
    """The error is of our kind and of the promised one, and names the line of the function."""
    with pytest.raises(error, match=match) as raised:
        ajax.jit(fn, **kwargs)(*args)
    assert isinstance(raised.value, AbeleError)
    assert isinstance(raised.value, upstream)
    if here:
        first = fn.__code__.co_firstlineno
        lines = range(first, first + len(inspect.getsource(fn).splitlines()))
        file, line = raised.value.at.rsplit(":", 1)
        assert file == __file__
        assert int(line) in lines
    return raised.value


def test_sizes_that_depend_on_values():
    def indices(v):
        return jnp.nonzero(v)

    error = _raises(ajax.ConcreteValueError, jax.errors.ConcretizationTypeError, "indices cannot be traced", indices, x)
    assert "size" in str(error)

    def masked(v):
        return v[v > 0]

    _raises(ajax.BooleanIndexError, IndexError, "Array boolean indices must be concrete", masked, x)

    def sized(v):
        return [1, 2, 3, 4][v]

    _raises(ajax.TracerIntegerError, TypeError, "sized cannot be traced", sized, 3)

    def shaped(v):
        return jnp.zeros((2, v))

    _raises(ajax.TracedSizeError, TypeError, "a shape holds a value of the device", shaped, 3)


def test_values_of_the_device_in_python():
    def branch(v):
        return v if v > 0 else -v

    error = _raises(ajax.TracerBoolError, jax.errors.TracerBoolConversionError, "boolean conversion", branch, 1.0)
    assert "jax.lax.cond" in error.remedy

    def host(v):
        return np.sin(v)

    _raises(ajax.TracerArrayError, TypeError, "host cannot be traced", host, x)


def test_leaked_tracers():
    kept = []
    ajax.jit(lambda v: kept.append(v) or v)(x)

    def uses(v):
        return v + kept[0]

    _raises(ajax.LeakedTracerError, jax.errors.UnexpectedTracerError, "uses cannot be traced", uses, x)


def test_types_of_64_bits():
    def wide(v):
        return v.astype("float64") * 2

    with jax.enable_x64(True):
        error = _raises(TypeMismatchError, TypeError, "float64 does not exist", wide, x)
        assert "jax_enable_x64" in error.remedy
        with pytest.raises(TypeMismatchError, match="int64 does not exist"):
            ajax.jit(lambda n: n)(np.arange(3))
        with pytest.raises(TypeMismatchError, match="complex128 does not exist"):
            ajax.jit(lambda v: v)(np.zeros(3, "complex128"))
    with pytest.raises(ElementRangeError, match="an integer of <lambda> does not fit"):
        ajax.jit(lambda v: v)(2**40)


def test_primitives_without_lowering_are_named_together():
    first, second = jax.extend.core.Primitive("first_of_mine"), jax.extend.core.Primitive("second_of_mine")
    first.def_abstract_eval(lambda v: v)
    second.def_abstract_eval(lambda v: v)

    def f(v):
        a = first.bind(v)
        return a + jax.lax.scan(lambda c, e: (second.bind(c) + e, None), 0.0, v)[0]

    error = _raises(UnsupportedOpError, AbeleError, "2 equations of the function have no lowering", f, x)
    assert "first_of_mine" in error.because
    assert "second_of_mine" in error.because
    assert error.because.count(__file__) == 2


def test_arguments():
    def f(v, how):
        return v

    _raises(ajax.StaticError, ValueError, "static argument 'how' is a list", f, x, [1], static_argnums=1, here=False)
    with pytest.raises(ajax.StaticError, match="'how' is a dict"):
        ajax.jit(f, static_argnames="how")(x, how={})
    _raises(ajax.NoArrayError, TypeError, "an argument of f is no array", f, x, "text", here=False)
    _raises(ajax.NoArrayError, TypeError, "an argument of f is no array", f, x, object(), here=False)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ajax.jit(f)(x)
    with pytest.raises(ajax.NoArrayError, match="has a type and no values"):
        ajax.jit(lambda a, b: a + b)(x, jax.ShapeDtypeStruct((3,), "float32"))
    elsewhere = types.SimpleNamespace(devices=lambda: [types.SimpleNamespace(platform="gpu")])
    with pytest.raises(ajax.ArgumentPlaceError, match="v is on"):
        check_host("v", elsewhere)


def test_results():
    def text(v):
        return "text"

    _raises(ajax.ResultError, TypeError, "text returns what is no array", text, x, here=False)
    _raises(ajax.ResultError, TypeError, "<lambda> returns what is no array", lambda v: {"a": object()}, x, here=False)


def test_compiled_functions_and_arguments_of_another_form():
    compiled = ajax.jit(lambda a, b: a @ b["w"]).lower(x, {"w": x}).compile()
    for args, words in (
        ((x,), "was compiled for arguments"),
        ((x, {"v": x}), "was compiled for arguments"),
        ((x, {"w": x[:2]}), r"b.w of <lambda> was compiled as float32\[3\], got float32\[2\]"),
        ((x, {"w": x.astype("i4")}), r"got int32\[3\]"),
        ((x, {"w": 1.0}), r"got float32\[\]"),
    ):
        with pytest.raises(ajax.CallError, match=words) as raised:
            compiled(*args)
        assert isinstance(raised.value, TypeError)
        assert isinstance(raised.value, SignatureError)
    assert float(compiled(x, {"w": x})) == 5


def test_iterations():
    total = ajax.jit(lambda s, v: (s + v.sum(), v), device_iterations=3, donate_argnums=0)
    with pytest.raises(BatchSizeError, match=r"v has shape \[2, 3\], and 3 device iterations read axis 0 of 3"):
        total(0.0, np.ones((2, 3), "f4"))
    for count in (0, 1.5, True):
        with pytest.raises(InvalidOptionError, match="device_iterations is a positive whole number"):
            ajax.jit(lambda v: v, device_iterations=count)
    with pytest.raises(InvalidOptionError, match="random is 'exact' or 'device'"):
        ajax.jit(lambda v: v, random="fast")
    with pytest.raises(ajax.NoArrayError, match="jit takes a function"):
        ajax.jit(3)
    with pytest.raises(InvalidOptionError, match="threds"):
        ajax.jit(lambda v: v, settings={"threds": 3})


def test_functions_that_do_not_fit_say_what_would():
    def f(a, b):
        return (jnp.sin(a) @ b) + (jnp.cos(a) @ b)

    big = jax.ShapeDtypeStruct((16384, 16384), "float32")
    with pytest.raises(OutOfMemoryError) as raised:
        ajax.jit(f).lower(big, big).compile()
    text = str(raised.value)
    assert "jax.checkpoint" in text
    assert "jax.shard_map" in text
    assert 'settings={"allow_out_of_memory": True}' in text


def test_other_versions_of_jax_and_64_bits_are_said_at_import():
    with pytest.warns(UserWarning, match=r"tested with JAX 0\.10\.x, and 0\.9\.2 is installed.*pip install"):
        ajax.warn_of_jax((0, 9, 2), has_x64=False)
    with pytest.warns(UserWarning, match="jax_enable_x64 is on.*jax.config.update"):
        ajax.warn_of_jax((0, 10, 2), has_x64=True)


def test_a_mapped_function_in_a_trace_of_jax():
    mapped = ajax.pmap(lambda v: v * 2)
    with pytest.raises(ajax.TransformError, match="mapped over replicas"):
        jax.jit(mapped)(np.ones((2, 3), "f4"))
