"""Random numbers: keys and the bits that they give, bit for bit as JAX has them.

A key of threefry is two words. Bits, splits and folds are each one op of the network that encrypts numbers of elements.
Other kinds of keys, and threefry without ``jax_threefry_partitionable``, are read from what JAX itself makes of them.
``rng_bit_generator``, behind keys of kind ``rbg``, has other numbers on every backend; here they are threefry's.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.random import core, prng

from abele.expr import Expr, apply
from abele.expr.derivative import arg
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, f32, i32, u32

x, y, z = arg(0), arg(1), arg(2)


def _is_direct(kind: Any) -> bool:
    """True for threefry's keys where each element's bits depend on its own number alone."""
    return bool(kind.tag == "fry" and jax.config.jax_threefry_partitionable)


def _kind(call: PrimitiveCall) -> Any:
    """The implementation of the keys that an equation reads."""
    return call.avals[0].dtype._impl


@primitive("random_wrap", "random_unwrap", "random_clone")
def same_words(call: PrimitiveCall, keys: Value) -> Value:
    """The words of the keys."""
    return keys


@primitive("random_seed")
def random_seed(call: PrimitiveCall, seeds: Value, *, impl: Any) -> Value:
    """Keys of seeds: zero and the seed for threefry."""
    if impl.tag != "fry":
        (keys,) = call.traced(lambda s: prng.random_seed_impl_base(s, impl=impl), seeds)
        return keys
    low = build.reshape(call.net, build.cast(call.net, seeds, u32), (*seeds.shape, 1))
    return build.concat(call.net, [build.full(call.net, 0, low.shape, u32), low], low.ndim - 1)


@primitive("random_split")
def random_split(call: PrimitiveCall, keys: Value, *, shape: Sequence[int]) -> Value:
    """New keys of each key."""
    kind, ndim = _kind(call), len(call.avals[0].shape)
    if _is_direct(kind):
        return build.random_words(call.net, keys, shape, pairs=True)
    (made,) = call.traced(lambda k: prng.random_split_impl_base(kind, k, ndim, shape=shape), keys)
    return made


@primitive("random_fold_in")
def random_fold_in(call: PrimitiveCall, keys: Value, data: Value) -> Value:
    """New keys of keys and numbers."""
    kind, shape, net = _kind(call), call.avals[0].shape, call.net
    if kind.tag == "fry":
        batch = call.shape[:-1]
        keys = build.expand(net, build.reshape(net, keys, (*(1,) * (len(batch) - len(shape)), *keys.shape)), call.shape)
        number = build.expand(net, build.cast(net, data, u32), batch)
        return build.random_words(net, keys, (), pairs=True, first=number)
    folded = prng.random_fold_in_impl_base
    (made,) = call.traced(lambda k, d: folded(kind, k, d, shape), keys, data)
    return made


@primitive("random_bits")
def random_bits(call: PrimitiveCall, keys: Value, *, bit_width: int, shape: Sequence[int]) -> Value:
    """Random bits of each key."""
    kind, ndim, net = _kind(call), len(call.avals[0].shape), call.net
    if kind.tag == "fry" and call.reader.random == "device" and not ndim:
        return build.cast(net, _drawn(call, keys, shape), call.dtype)
    if _is_direct(kind):
        return build.cast(net, build.random_words(net, keys, shape), call.dtype)
    bits = prng.random_bits_impl_base
    (made,) = call.traced(lambda k: bits(kind, k, ndim, bit_width=bit_width, shape=shape), keys)
    return made


def _drawn(call: PrimitiveCall, key: Value, shape: Sequence[int]) -> Value:
    """Words of the machine's generator with a key for its seed."""
    return call.net.emit("draw", [key], tuple(shape), u32, expr=x, draws=1, modifier=0)


@primitive("threefry2x32")
def threefry(call: PrimitiveCall, *operands: Value) -> tuple[Value, Value]:
    """Numbers of two words encrypted under keys of two."""
    k0, k1, c0, c1 = operands
    return build.threefry(call.net, k0, k1, c0, c1)


def _register_cipher(name: str) -> None:
    @primitive(name)
    def cipher(call: PrimitiveCall, *operands: Value) -> tuple[Value, ...]:
        lowered = getattr(importlib.import_module(f"jax._src.random.{name}"), f"_{name}_lowering")
        return call.traced(lowered, *operands)


for _name in ("threefry4x32", "philox2x32", "philox4x32"):
    _register_cipher(_name)


@primitive("iota_2x32_shape")
def numbers_of_two_words(call: PrimitiveCall, *, shape: Sequence[int]) -> tuple[Value, Value]:
    """High and low words of the numbers of elements."""
    low = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    return build.full(call.net, 0, tuple(shape), u32), call.net.constant(low.astype(np.uint32), u32)


@primitive("random_gamma")
def random_gamma(call: PrimitiveCall, keys: Value, shape: Value, *, log_space: bool) -> Value:
    """Samples of the gamma distribution, all elements at a time."""
    kind = _kind(call)

    def sampled(words: Any, alphas: Any) -> Any:
        wrapped = jax.random.wrap_key_data(words, impl=kind)
        return core._gamma_impl(wrapped, alphas, log_space=log_space, use_vmap=True)

    (made,) = call.traced(sampled, keys, shape)
    return made


@primitive("rng_bit_generator")
def rng_bit_generator(call: PrimitiveCall, state: Value, *, shape: Sequence[int], dtype: Any) -> tuple[Value, Value]:
    """The state after a draw, and random bits: numbers of its last two words on, under its first two as a key."""
    net = call.net
    if state.dtype != u32 or state.shape != (4,):
        raise call.refuse(f"with a state of {state.dtype}{list(state.shape)}", "draw from a state of u32[4]")
    key, last = build.slice_(net, state, 0, 0, 2), build.slice_(net, state, 0, 2, 4)
    words = [build.reshape(net, build.slice_(net, state, 0, n, n + 1), ()) for n in range(4)]
    inner = build.concat(net, [build.reshape(net, v, (1,)) for v in build.threefry(net, *words)], 0)
    bits = _drawn(call, inner, shape) if call.reader.random == "device" else build.random_words(net, inner, shape)
    step = net.constant(np.array([0, 1], np.uint32), u32)
    advanced = build.map_(net, x + y, [last, step], u32)
    return build.concat(net, [key, advanced], 0), build.cast(net, bits, element_type(dtype))


@primitive("rng_uniform")
def rng_uniform(call: PrimitiveCall, low: Value, high: Value, *, shape: Sequence[int]) -> Value:
    """Numbers between two, from the machine's generator; JAX has no key for them either."""
    net, dtype = call.net, call.dtype
    if dtype == bool_:
        raise call.refuse("of bools", "use jax.random.bernoulli")
    drawn = build.uniform(net, tuple(shape), f32)
    part: Expr = x * (z - y) + y
    if dtype.is_float:
        return call.map(part, drawn, low, high, common=f32)
    wide = [build.cast(net, v, f32) for v in (low, high)]
    return build.cast(net, build.cast(net, build.map_(net, apply("floor", part), [drawn, *wide], f32), i32), dtype)
