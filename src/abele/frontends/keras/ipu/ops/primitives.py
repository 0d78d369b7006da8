"""Primitives of JAX for what a trace of one replica cannot say: the other replicas, and marks for passes.

On JAX itself, where a model is built or called eagerly, each is what it is on one replica.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jec
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from abele.errors import InvalidOptionError
from abele.frontends.jaxpr import PrimitiveCall, primitive
from abele.frontends.keras.model.scopes import SCOPES
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.replicas import APART
from abele.poplibs.gcl import CommGroup


def _linear(name: str, impl: Any) -> jec.Primitive:
    """A primitive of one operand that is linear in it."""
    made = jec.Primitive(name)
    made.def_impl(impl)
    made.def_abstract_eval(
        lambda x, **params: jax.core.ShapedArray(
            jax.eval_shape(lambda a: impl(a, **params), jax.ShapeDtypeStruct(x.shape, x.dtype)).shape, x.dtype
        )
    )
    mlir.register_lowering(made, mlir.lower_fun(impl, multiple_results=False))
    ad.primitive_jvps[made] = lambda given, tangents, **params: (
        made.bind(*given, **params),
        ad.instantiate_zeros(tangents[0]) if type(tangents[0]) is ad.Zero else made.bind(*tangents, **params),
    )
    batching.primitive_batchers[made] = lambda args, dims, **params: (made.bind(*args, **params), dims[0])
    return made


SUM = _linear("abele_replica_sum", lambda x, *, size: x * 1 if size == 1 else x * size)
GATHER = _linear("abele_replica_gather", lambda x, *, size: jnp.broadcast_to(x[None], (size, *x.shape)))
SCATTER = _linear("abele_replica_scatter", lambda x, *, size: x[: x.shape[0] // size] * size)
KEEP = _linear("abele_keep", lambda x: x)
PRINT = _linear("abele_print", lambda x, *, title: x)

RANK = jec.Primitive("abele_replica_rank")
RANK.def_impl(lambda *, size: jnp.zeros((), jnp.int32))
RANK.def_abstract_eval(lambda *, size: jax.core.ShapedArray((), jnp.int32))
mlir.register_lowering(RANK, mlir.lower_fun(lambda *, size: jnp.zeros((), jnp.int32), multiple_results=False))


def replicas() -> int:
    """Replicas of the program that is being traced; 1 outside."""
    return SCOPES.replicas or 1


def check_replicas(count: int) -> int:
    """The number of replicas that an operation is for.

    Raises:
        InvalidOptionError: The program that is being traced has another.
    """
    if SCOPES.replicas not in (0, count):
        raise InvalidOptionError(
            f"the operation is for {count} replicas, the program has {SCOPES.replicas}", remedy="the number of replicas"
        )
    return count


def _group(size: int) -> CommGroup:
    return CommGroup.consecutive(size)


@primitive("abele_replica_sum")
def _sum(call: PrimitiveCall, x: Value, *, size: int) -> Value:
    return build.replica_sum(call.net, x, _group(size), APART)


@primitive("abele_replica_gather")
def _gather(call: PrimitiveCall, x: Value, *, size: int) -> Value:
    return build.replica_gather(call.net, build.reshape(call.net, x, (1, *x.shape)), 0, _group(size), APART)


@primitive("abele_replica_scatter")
def _scatter(call: PrimitiveCall, x: Value, *, size: int) -> Value:
    return build.replica_scatter(call.net, x, 0, _group(size), of_sum=True)


@primitive("abele_replica_rank")
def _rank(call: PrimitiveCall, *, size: int) -> Value:
    return build.replica_rank(call.net, _group(size))


_rank.runs = True  # type: ignore[attr-defined]  # It has no operands, and is no constant.


@primitive("abele_keep")
def _keep(call: PrimitiveCall, x: Value) -> Value:
    return build.keep(call.net, x)


@primitive("abele_print")
def _print(call: PrimitiveCall, x: Value, *, title: str) -> Value:
    return build.print_value(call.net, x, title, gradient=False)
