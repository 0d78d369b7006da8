"""Whole programs of JAX, three calls each, beside ``jax.jit`` on the CPU."""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from abele import jax as abele_jax
from support import sweeps

NAMES = sorted(p.stem for p in (Path(__file__).parent / "programs").glob("*.py") if p.stem != "program")
PLAIN = ("kmeans",)
"""Programs of plain runs; slow ones have a sample of the others."""
FURTHER = sweeps.sampled([name for name in NAMES if name not in PLAIN], 10)


def load(name, scale=1):
    """A program of the table."""
    return importlib.import_module(f"frontends.jax.programs.{name}").program(scale)


def words(array):
    """An array as numbers."""
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array)


def check(found, wanted, rtol):
    """Compare the leaves of two trees."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        ours, theirs = words(ours), words(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if theirs.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
        else:
            largest = float(np.abs(theirs).max(initial=1e-3))
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * largest)


@pytest.mark.parametrize("name", [*PLAIN, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_program__three_calls__gives_what_jax_gives(name):
    program = load(name)
    ours, theirs = abele_jax.jit(program.step, donate_argnums=0), jax.jit(program.step)
    state, wanted = jax.tree.map(lambda a: a.copy(), program.state), program.state
    for batch in program.batches:
        state, result = ours(state, *batch)
        wanted, expected = theirs(wanted, *batch)
        check(result, expected, program.rtol)
    check(state, wanted, program.rtol)
    ours.clear_cache()
