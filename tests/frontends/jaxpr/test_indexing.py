"""Gathers, scatters, dynamic slices and what puts arrays together, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from frontends.jaxpr.jaxpr_kit import check, mostly_slow
from support.examples import examples

QUICK = settings(examples(8), suppress_health_check=list(HealthCheck), database=None)
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


# --- indexing as users write it ---------------------------------------------------------------------------------------

ROWS = np.array([[3, 0, 2], [1, 1, -1]], np.int32)
J = np.array([2, 0, 4], np.int32)
MASK = np.array([True, False, True, True, False])


def cube():
    return np.random.default_rng(0).normal(size=(4, 5, 6)).astype("f4")


READS = {
    "rows": lambda x, i, j: x[i],
    "columns": lambda x, i, j: x[:, j],
    "last": lambda x, i, j: x[..., j],
    "apart": lambda x, i, j: x[i, :, j],
    "beside": lambda x, i, j: x[:, i, j],
    "all": lambda x, i, j: x[i, j, j],
    "broadcast": lambda x, i, j: x[i[:, :, None], j],
    "new_axis": lambda x, i, j: x[i, None, :, j[0]],
    "number": lambda x, i, j: x[i[0, 0]],
    "numbers": lambda x, i, j: x[i[0, 0], :, j[1]],
    "slices_beside": lambda x, i, j: x[1:3, j, ::2],
    "backwards": lambda x, i, j: x[::-1, -2:0:-1, j],
    "known": lambda x, i, j: x[:, np.array([0, 2, 4])],
    "known_far": lambda x, i, j: x[np.array([3, 0, 2]), np.array([1, 1, 4])],
    "mask": lambda x, i, j: x[:, MASK],
    "beyond": lambda x, i, j: x[j + 3],
    "take": lambda x, i, j: jnp.take(x, i, axis=1),
    "take_fill": lambda x, i, j: jnp.take(x, j + 2, axis=2, mode="fill", fill_value=7.0),
    "take_clip": lambda x, i, j: jnp.take(x, j + 2, axis=0, mode="clip"),
    "take_wrap": lambda x, i, j: jnp.take(x, j + 2, axis=0, mode="wrap"),
    "take_flat": lambda x, i, j: jnp.take(x, i),
    "get_fill": lambda x, i, j: x.at[j + 1, :, j + 3].get(mode="fill", fill_value=-1),
    "along": lambda x, i, j: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "along_broadcast": lambda x, i, j: jnp.take_along_axis(x, j[:, None] * jnp.ones((4, 1, 1), int), 1),
    "along_clip": lambda x, i, j: jnp.take_along_axis(
        x, j[None, :, None] + 3 + jnp.zeros((4, 3, 6), int), 1, mode="clip"
    ),
    "vmap_rows": lambda x, i, j: jax.vmap(lambda v, k: v[k])(x[:3], j),
    "vmap_windows": lambda x, i, j: jax.vmap(lambda v, k: lax.dynamic_slice_in_dim(v, k, 3, 0))(x[:3], j),
    "vmap_shared": lambda x, i, j: jax.vmap(lambda k: lax.dynamic_slice(x, (k, k, k), (2, 2, 2)))(j),
    "dynamic": lambda x, i, j: lax.dynamic_slice(x, (i[0, 0], j[0], j[2]), (2, 3, 4)),
    "dynamic_in_dim": lambda x, i, j: lax.dynamic_index_in_dim(x, j[0], 1, keepdims=False),
    "roll": lambda x, i, j: jnp.roll(x, (1, -2), (0, 2)),
    "roll_dynamic": lambda x, i, j: jnp.roll(x, j[0], axis=1),
    "repeat": lambda x, i, j: jnp.repeat(x, 3, axis=1),
    "repeat_total": lambda x, i, j: jnp.repeat(x[0], jnp.array([1, 0, 2, 1, 3]), axis=0, total_repeat_length=7),
    "choose": lambda x, i, j: jnp.choose(j % 2, [x[0, 0, :3], x[1, 1, :3]], mode="clip"),
    "select": lambda x, i, j: jnp.select([x > 1, x < -1], [x * 2, x * 3], 0.5),
    "extract": lambda x, i, j: jnp.extract(x[0, 0] > 0, x[0, 0], size=5, fill_value=9.0),
    "mask_size": lambda x, i, j: x[jnp.nonzero(x[:, 0, 0] > 0, size=3, fill_value=1)],
    "argwhere": lambda x, i, j: x[0, 0, jnp.argwhere(x[0, 0] > 0, size=4)[:, 0]],
    "tril": lambda x, i, j: [jnp.tril(x), jnp.triu(x, 1), x[0][jnp.tril_indices(5)]],
    "diagonal": lambda x, i, j: [jnp.diagonal(x, 1), jnp.diag(x[0, 0]), jnp.trace(x[0]), jnp.diag(x[0], -1)],
    "interp": lambda x, i, j: jnp.interp(x[0, 0], jnp.linspace(-2.0, 2.0, 9), jnp.arange(9.0) ** 2),
    "polyval": lambda x, i, j: jnp.polyval(x[0, 0], x[1]),
    "einsum": lambda x, i, j: [
        jnp.einsum("abc,adc->bd", x, x),
        jnp.einsum("aab->b", x[:, :4]),
        jnp.einsum("ii", x[0, :5, :5]),
    ],
    "convolve": lambda x, i, j: jnp.stack([x[0, 0], x[1, 1]]),
    "unstack": lambda x, i, j: jnp.unstack(x, axis=1)[2],
    "split": lambda x, i, j: [*jnp.split(x, [1, 3], axis=1), *jnp.array_split(x, 4, axis=2)],
    "tile": lambda x, i, j: jnp.tile(x, (2, 1, 3)),
    "meshgrid": lambda x, i, j: jnp.meshgrid(x[0, 0], x[0, :, 0]),
    "insert": lambda x, i, j: [jnp.insert(x, 2, 5.0, axis=1), jnp.insert(x, np.array([0, 3]), 1.0, axis=2)],
    "delete": lambda x, i, j: [jnp.delete(x, 1, axis=1), jnp.delete(x, np.array([0, 2]), axis=2)],
    "rot90": lambda x, i, j: [jnp.rot90(x), jnp.flip(x, 1), jnp.flipud(x)],
    "pads": lambda x, i, j: [
        jnp.pad(x[0], 2, mode=m) for m in ("constant", "edge", "reflect", "wrap", "symmetric", "linear_ramp", "mean")
    ],
    "block": lambda x, i, j: jnp.block([[x[0], x[1]], [x[2], x[3]]]),
    "moveaxis": lambda x, i, j: [jnp.moveaxis(x, 0, -1), jnp.swapaxes(x, 0, 1), jnp.rollaxis(x, 2)],
    "map_coordinates": lambda x, i, j: jax.scipy.ndimage.map_coordinates(x[0], [x[1, 0] + 2, x[2, 0] + 2], order=1),
    "piecewise": lambda x, i, j: jnp.where(x > 0, x, jnp.exp(x)),
    "apply_along": lambda x, i, j: jnp.apply_along_axis(lambda v: v[::-1] * v[0], 1, x),
}

WRITES = {
    "set": lambda x, i, j: x.at[i[:, 0]].set(x[1:3]),
    "set_number": lambda x, i, j: x.at[1].set(2.0),
    "set_slice": lambda x, i, j: x.at[1:3, ::2].set(x[:2, :3] * 2),
    "set_window": lambda x, i, j: x.at[1:3, 2:].set(x[:2, :3]),
    "set_column": lambda x, i, j: x.at[:, j].set(x[:, :3]),
    "set_apart": lambda x, i, j: x.at[i, :, j].set(1.5),
    "set_beyond": lambda x, i, j: x.at[j + 2].set(3.0),
    "set_dynamic": lambda x, i, j: x.at[i[0, 0], j[0]].set(x[0, 1]),
    "set_known": lambda x, i, j: x.at[np.array([3, 0])].set(x[:2] * 2),
    "add": lambda x, i, j: x.at[i].add(x[0] * 2),
    "add_known": lambda x, i, j: x.at[:, np.array([3, 0, 4])].add(x[:, :3]),
    "add_equal": lambda x, i, j: x.at[np.array([1, 1, 0])].add(x[:3]),
    "add_columns": lambda x, i, j: x.at[..., j].add(1.0),
    "add_pairs": lambda x, i, j: x.at[i, j].add(x[0, 0]),
    "add_number": lambda x, i, j: x.at[i[0, 1], :, j[0]].add(2.0),
    "add_clip": lambda x, i, j: x.at[j + 2].add(x[:3], mode="clip"),
    "multiply": lambda x, i, j: x.at[:, i[0]].multiply(x[:, :3]),
    "divide": lambda x, i, j: x.at[1].divide(2.0),
    "subtract": lambda x, i, j: x.at[j].subtract(x[:3]),
    "min": lambda x, i, j: x.at[i[:, 0]].min(x[2:]),
    "max": lambda x, i, j: x.at[:, j].max(0.0),
    "apply": lambda x, i, j: x.at[i[:, 0]].apply(jnp.sin),
    "apply_slice": lambda x, i, j: x.at[1:3].apply(jnp.exp),
    "update_slice": lambda x, i, j: lax.dynamic_update_slice(x, x[:2, :2, :2] * 2, (i[0, 0], j[0], j[2])),
    "update_in_dim": lambda x, i, j: lax.dynamic_update_index_in_dim(x, x[:, 0] * 2, j[0], 1),
    "put_along": lambda x, i, j: jnp.put_along_axis(x, jnp.argmax(x, 1, keepdims=True), 9.0, 1, inplace=False),
    "vmap_set": lambda x, i, j: jax.vmap(lambda v, k: v.at[k].set(v[0] + 1))(x[:3], j),
    "vmap_update": lambda x, i, j: jax.vmap(lambda v, k: lax.dynamic_update_slice(v, v[:2, :2], (k, k)))(x[:3], j),
    "one_hot": lambda x, i, j: jax.nn.one_hot(j, 5) @ x[0],
    "segment_sum": lambda x, i, j: jax.ops.segment_sum(x[:3], j, 5),
    "segment_max": lambda x, i, j: jax.ops.segment_max(x[:3], j, 5),
    "segment_min": lambda x, i, j: jax.ops.segment_min(x[:3], jnp.sort(j), 5, indices_are_sorted=True),
    "segment_prod": lambda x, i, j: jax.ops.segment_prod(x[0], jnp.array([0, 1, 1, 0, 2]), 3),
    "bincount": lambda x, i, j: jnp.bincount(i[0], weights=x[0, 0, :3], length=5),
    "fill_diagonal": lambda x, i, j: jnp.fill_diagonal(x[0], 7.0, inplace=False),
    "place": lambda x, i, j: jnp.place(x[0], x[0] > 1, jnp.array([1.0, 2.0]), inplace=False),
}


def _finite_sum(made):
    return sum(jnp.where(jnp.isfinite(v), jnp.sin(v) * v, 0).sum() for v in jax.tree.leaves(made))


NO_DERIVATIVE = {"multiply", "apply", "apply_slice", "segment_prod"}
"""Of which JAX has no derivative."""


PLAIN = ["apart", "take_fill", "along", "dynamic", "set_window", "add_pairs", "vmap_update"]


@pytest.mark.parametrize("name", mostly_slow(READS | WRITES, *PLAIN))
def test_indexing_as_users_write_it_and_its_gradient(name):
    fn = (READS | WRITES)[name]
    check(fn, cube(), ROWS, J, rtol=1e-5, atol=1e-5)
    if name not in NO_DERIVATIVE:
        check(jax.grad(lambda x, i, j: _finite_sum(fn(x, i, j))), cube(), ROWS, J, rtol=1e-5, atol=1e-5)


COUNTS = {
    "bincount": lambda x: jnp.bincount(x, length=6),
    "histogram": lambda x: jnp.histogram(x.astype(float), bins=4, range=(0.0, 5.0)),
    "histogram2d": lambda x: jnp.histogram2d(
        x.astype(float), x[::-1].astype(float), bins=(3, 2), range=((0, 5), (0, 5))
    )[0],
    "nonzero": lambda x: jnp.nonzero(x > 2, size=4, fill_value=9),
    "where_size": lambda x: jnp.where(x > 2, size=4),
    "flatnonzero": lambda x: jnp.flatnonzero(x > 2, size=3),
    "unravel": lambda x: jnp.unravel_index(x, (2, 3)),
    "ravel": lambda x: jnp.ravel_multi_index((x % 2, x % 3), (2, 3), mode="clip"),
    "packbits": lambda x: jnp.packbits(x > 2),
    "tri": lambda x: jnp.tri(3, 4, 1),
    "eye": lambda x: [jnp.eye(3, k=1), jnp.arange(5) + x[0], jnp.linspace(0, x[0], 4), jnp.indices((2, 3))],
}


@pytest.mark.parametrize("name", mostly_slow(COUNTS, "bincount", "nonzero"))
def test_counts_and_positions(name):
    check(COUNTS[name], np.array([3, 0, 5, 3, 1, 4, 2], np.int32), rtol=1e-6)


@pytest.mark.parametrize("name", mostly_slow([np.dtype(t).name for t in DTYPES], "bfloat16", "bool"))
def test_indexing_of_every_type(name):
    dtype = jnp.dtype(name)
    rng = np.random.default_rng(0)
    x = numbers(rng, (5, 6), dtype)

    def fn(x, j):
        made = [
            jnp.take(x, j + 2, axis=0),
            jnp.take(x, j, axis=1, mode="clip"),
            x.at[j].set(x[:3]),
            x.at[:, j].min(x[:, :3]),
            x.at[j, j].max(x[0, :3]),
            lax.dynamic_update_slice(x, x[:2, :2], (j[0], j[1])),
            lax.pad(x, x[0, 0], ((1, -2, 1), (-1, 3, 0))),
        ]
        if x.dtype != bool:
            made += [
                x.at[j].add(x[:3]),
                x.at[j].multiply(x[:3]),
                jnp.zeros_like(x).at[j].add(x[:3]),
                x.at[j].apply(lambda v: v + v),
                x.at[j].subtract(x[:3]),
            ]
        return made

    check(fn, x, J)


@pytest.mark.parametrize("dtype", [np.uint8, pytest.param(np.uint32, marks=pytest.mark.slow)])
def test_indices_of_every_type(dtype):
    def fn(x, j):
        taken = [x[j], x[:, j], x[j[0]], jnp.take(x, j, axis=1)]
        return taken, x.at[j].set(1.0), lax.dynamic_slice(x, (j[0], j[1], j[2]), (1, 2, 3))

    check(fn, cube(), np.array([2, 0, 3], dtype))


def test_indices_far_outside():
    x = cube()
    far = np.array([2**32 - 1, 0], np.uint32)
    check(lambda x, j: [jnp.take(x, j, axis=0, mode="clip"), jnp.take(x, j, axis=0)], x, far)


def test_keys_are_moved_with_their_words():
    keys = jax.random.split(jax.random.key(3), 6)

    def fn(keys, j):
        grid = keys.reshape(2, 3)
        return [
            grid[j % 2, j % 3],
            grid.T,
            jnp.concatenate([keys, keys[:2]]),
            keys.at[j].set(keys[:3]),
            lax.dynamic_slice_in_dim(keys, j[0], 2),
            jnp.where(jnp.arange(6) > 2, keys, keys[0]),
        ]

    check(fn, keys, J)


@pytest.mark.slow
def test_keys_are_moved_in_more_ways():
    keys = jax.random.split(jax.random.key(3), 6)

    def fn(keys, j):
        grid = keys.reshape(2, 3)
        return [
            keys[j],
            keys[j[0]],
            grid[:, j % 3],
            keys[::2],
            grid[None, :, 1],
            jnp.stack([keys, keys]),
            keys[::-1],
            jnp.broadcast_to(keys, (2, 6)),
            lax.dynamic_update_slice(keys, keys[:2], (j[1],)),
            jnp.tile(keys, 2),
            jnp.split(grid, 3, axis=1)[1],
            jnp.expand_dims(keys, 1),
            jnp.roll(keys, 2),
            jax.vmap(lambda k, n: k[n])(grid, j[:2]),
        ]

    check(fn, keys, J)


@pytest.mark.parametrize("low", [-4, -1, 0, 2])
@pytest.mark.parametrize("high", [-4, -1, 0, 3])
@pytest.mark.parametrize("interior", [0, 1, 3])
@pytest.mark.parametrize("extent", [0, 1, 3])
def test_padding_is_put_on_and_taken_away(low, high, interior, extent):
    if low + high + extent + max(0, extent - 1) * interior < 0:
        pytest.skip("nothing is left")
    x = np.arange(2.0 * extent, dtype="f4").reshape(2, extent) + 1
    check(lambda x, fill: lax.pad(x, fill, ((0, 1, 0), (low, high, interior))), x, np.float32(7))


def test_steps_of_loops_read_and_write_windows_in_place():
    def fn(table, steps):
        def step(table, n):
            row = lax.dynamic_slice(table, (n, 0), (2, 3))
            return lax.dynamic_update_slice(table, row + 1, (n + 1, 1)), row.sum()

        return lax.scan(step, table, steps)

    check(fn, np.arange(40, dtype="f4").reshape(8, 5), np.array([0, 3, 5, 1], np.int32), native=True)


ON_THE_MACHINE = ["apart", "along", "take", "vmap_windows", "dynamic", "known_far", "mask", "take_fill"]
ON_THE_MACHINE += ["set_apart", "add_pairs", "vmap_update", "apply"]
ON_THE_MACHINE += ["update_slice", "set_window", "add_known", "segment_max"]
SOME_AND_ALL = [["take_fill", "add_pairs"], pytest.param(ON_THE_MACHINE, marks=pytest.mark.slow)]


@pytest.mark.parametrize("wanted", SOME_AND_ALL, ids=["some", "all"])
def test_indexing_runs_on_the_machine(wanted):
    def fn(x, i, j):
        return [(READS | WRITES)[name](x, i, j) for name in wanted]

    check(fn, cube(), ROWS, J, native=True)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["take", "index"])
def test_embeddings_take_the_cycles_that_pytorch_s_take(form):
    torch = pytest.importorskip("torch")
    from abele import poptorch
    from abele.frontends.jaxpr import capture
    from abele.session import Session

    rows, width, count = 30_000, 768, 512

    def loss(table, words, weight):
        taken = jnp.take(table, words, axis=0) if form == "take" else table[words]
        return (taken * weight).sum()

    class Embedded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(rows, width)

        def forward(self, words, weight):
            return poptorch.identity_loss((self.table(words) * weight).sum(), "none")

    def cycles(report):
        """Cycles of the forward pass and the gradient, without what updates the table."""
        kinds = report.ops["kind"]
        wanted = ("popops.multi_slice", "popops.multi_update_add", "popops.zero", "popops.map", "popops.reduce")
        spent = zip(report.steps["op"], report.steps["cycles"], strict=True)
        return sum(int(taken) for op, taken in spent if op >= 0 and kinds[op] in wanted)

    module = Embedded()
    model = poptorch.trainingModel(module, optimizer=poptorch.optim.SGD(module.parameters(), lr=0.1))
    model.compile(torch.zeros(count, dtype=torch.int64), torch.zeros(count, width))
    shapes = [((rows, width), np.float32), ((count,), np.int32), ((count, width), np.float32)]
    given = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    # The gradient stays on the device, as PyTorch's does.
    step = jax.make_jaxpr(lambda grad, *given: jax.value_and_grad(loss)(*given)[::-1])
    found = capture(step(given[0], *given), ["grad", "table", "words", "weight"], {0: 0})
    with Session.of(found.network, weights={"grad": np.zeros((rows, width), np.float32)}) as session:
        ours = cycles(session.report)
    assert ours <= 1.05 * cycles(model.report())
