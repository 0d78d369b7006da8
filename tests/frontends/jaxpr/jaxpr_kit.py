"""Functions of JAX, read into networks and held against JAX on the CPU."""

import jax
import numpy as np
import pytest

from abele.frontends.jaxpr import capture
from abele.frontends.jaxpr.complex_numbers import with_parts
from abele.network import evaluate, verify
from abele.network.passes.dead_code import DeadCode
from abele.network.passes.fuse_maps import FuseMaps
from abele.session import Session, Settings


def words(array):
    """An array on the device: keys are their words, complex numbers their parts."""
    array = jax.numpy.asarray(array) if not hasattr(array, "dtype") else array
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return with_parts(array)


def captured(fn, *args):
    """The function's network, and its arguments as NumPy arrays."""
    leaves, _ = jax.tree.flatten(args)
    found = capture(jax.make_jaxpr(fn)(*args), [f"arg{n}" for n in range(len(leaves))])
    verify(found.network)
    return found, [words(leaf) for leaf in leaves]


def read(fn, *args, precise=False):
    """Results of the function's network, evaluated in NumPy."""
    found, arrays = captured(fn, *args)
    feeds = dict(zip(found.arguments, arrays, strict=True))
    feeds |= {b: found.closed_over[b.name] for b in found.network.buffers}
    if found.network.seed is not None:
        feeds[found.network.seed] = np.array([7, 0], np.uint32)
    values = evaluate(found.network, feeds, precise=precise)
    return [values[v] for v in found.network.outputs]


def run(fn, *args):
    """Results of the function's network, compiled and run."""
    found, arrays = captured(fn, *args)
    with Session.of(found.network, settings=Settings(fuse_maps=True), weights=dict(found.closed_over)) as session:
        return list(session(*arrays))


def check(fn, *args, rtol=2e-6, atol=2e-6, native=False):
    """Compare the function's network with JAX; ``native`` compiles it too."""
    want = [words(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]
    ways = [read(fn, *args)] + ([run(fn, *args)] if native else [])
    for got in ways:
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            if theirs.dtype.kind in "biu":
                np.testing.assert_array_equal(ours, theirs)
            else:
                np.testing.assert_allclose(
                    ours.astype(np.float32), theirs.astype(np.float32), rtol=rtol, atol=atol, equal_nan=True
                )


compiled_where_slow = pytest.mark.parametrize(
    "native", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["evaluated", "compiled"]
)
"""Plain runs evaluate the network, slow ones compile it too."""


def mostly_slow(names, *plain):
    """Names of cases, of which plain runs have those in ``plain``."""
    assert set(plain) <= set(names)
    return [name if name in plain else pytest.param(name, marks=pytest.mark.slow) for name in names]


def fused_kinds(net):
    """Kinds of the ops that are left once maps compute what they read."""
    for step in (DeadCode(), FuseMaps(), DeadCode()):
        net = step.run(net)
    return [op.kind for op in net.ops]
