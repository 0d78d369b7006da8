"""Gathers, scatters, dynamic slices and what puts arrays together, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from frontends.jaxpr.jaxpr_kit import check

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
MODES = ["clip", "fill", "promise_in_bounds"]
DTYPES = [np.float32, np.float16, jnp.bfloat16, np.int32, np.int8, np.uint32, np.uint8, np.bool_]


def numbers(rng, shape, dtype=np.float32):
    """Small whole numbers, of which sums and products are exact in every type."""
    low = 0 if np.dtype(dtype).kind in "ub" else -3
    return rng.integers(low, 2 if dtype == np.bool_ else 4, shape).astype(dtype)


# --- random dimension numbers -----------------------------------------------------------------------------------------


@st.composite
def windows(draw):
    """An operand shape, the indices' shape, dimension numbers and window sizes of a gather."""
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 5)) for _ in range(rank)]
    dims = list(range(rank))
    num_batching = draw(st.integers(0, min(2, rank - 1)))
    batching = sorted(draw(st.permutations(dims))[:num_batching])
    rest = [d for d in dims if d not in batching]
    starting = draw(st.permutations(rest))[: draw(st.integers(1, len(rest)))]
    sizes = [1 if d in batching else draw(st.integers(1, shape[d])) for d in dims]
    collapsed = [d for d in rest if draw(st.booleans())]
    for d in collapsed:
        sizes[d] = 1
    lead = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 2)))]
    places = []
    for d in batching:
        at = draw(st.integers(0, len(lead)))
        lead.insert(at, shape[d])
        places = [p + (p >= at) for p in places] + [at]
    num_offset = rank - len(batching) - len(collapsed)
    total = num_offset + len(lead)
    offset = sorted(draw(st.permutations(range(total)))[:num_offset])
    return (
        shape,
        (*lead, len(starting)),
        sizes,
        tuple(offset),
        tuple(collapsed),
        tuple(starting),
        tuple(batching),
        tuple(places),
    )


@QUICK
@given(
    windows(),
    st.sampled_from(MODES),
    st.sampled_from([np.float32, np.int32, np.bool_]),
    st.booleans(),
    st.integers(0, 99),
)
def test_gathers_of_any_dimension_numbers_are_those_of_jax(form, mode, dtype, known, seed):
    shape, index_shape, sizes, offset, collapsed, starting, batching, places = form
    rng = np.random.default_rng(seed)
    wide = 0 if mode == "promise_in_bounds" else 2
    limits = [shape[d] - sizes[d] for d in starting]
    index = (
        rng.integers(-wide, np.array(limits, int) + 1 + wide, index_shape, dtype=np.int32)
        if limits
        else np.zeros(index_shape, np.int32)
    )
    numbers_of = lax.GatherDimensionNumbers(offset, collapsed, starting, batching, places)

    def fn(array, index):
        return lax.gather(array, index, numbers_of, tuple(sizes), mode=mode)

    array = numbers(rng, shape, dtype)
    if known:
        check(lambda array: fn(array, index), array)
    else:
        check(fn, array, index)


@QUICK
@given(
    windows(),
    st.sampled_from(["set", "add", "mul", "min", "max", "sub", "apply"]),
    st.sampled_from(MODES),
    st.sampled_from([np.float32, np.int32, np.bool_]),
    st.booleans(),
    st.integers(0, 99),
)
def test_scatters_of_any_dimension_numbers_are_those_of_jax(form, operation, mode, dtype, known, seed):
    shape, index_shape, sizes, window, inserted, starting, batching, places = form
    rng = np.random.default_rng(seed)
    wide = 0 if mode == "promise_in_bounds" else 2
    limits = [shape[d] - sizes[d] for d in starting]
    index = (
        rng.integers(-wide, np.array(limits, int) + 1 + wide, index_shape, dtype=np.int32)
        if limits
        else np.zeros(index_shape, np.int32)
    )
    numbers_of = lax.ScatterDimensionNumbers(window, inserted, starting, batching, places)
    own = iter([sizes[d] for d in range(len(shape)) if d not in (*inserted, *batching)])
    lead = iter(index_shape[:-1])
    updates_shape = [next(own) if d in window else next(lead) for d in range(len(window) + len(index_shape) - 1)]
    if dtype == np.bool_ and operation not in ("set", "min", "max"):
        dtype = np.int32

    def fn(array, index, updates):
        if operation == "apply":
            return lax.scatter_apply(
                array, index, lambda x: x * 2 + 1, numbers_of, update_shape=tuple(updates_shape), mode=mode
            )
        scatter = getattr(lax, "scatter" if operation == "set" else f"scatter_{operation}")
        return scatter(array, index, updates, numbers_of, mode=mode)

    array, updates = numbers(rng, shape, dtype), numbers(rng, updates_shape, dtype)
    if known:
        check(lambda array, updates: fn(array, index, updates), array, updates)
    else:
        check(fn, array, index, updates)
