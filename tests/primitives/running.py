"""One sample in one type: read into a network, interpreted, and compiled for some, held against JAX on the CPU."""

from __future__ import annotations

import contextlib
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.errors import UnsupportedOpError
from frontends.jaxpr.jaxpr_kit import read, run, words
from primitives.census import traced
from primitives.samples import Sample, X

TOLERANCES = {"f32": 2e-5, "f16": 1e-2, "bf16": 4e-2}
"""Largest errors, relative to the value and to the largest of its array (at least 1)."""


class OutOfTimeError(BaseException):
    """A sample takes longer than it may; not an Exception, so that nothing on the way catches it."""


@dataclass
class Row:
    """Result of a sample in a type.

    Attributes:
        name: Of the primitive or function.
        label: Of the sample among those of the name.
        dtype: The type.
        status: ``pass``, ``fail``, or ``excluded`` where JAX itself refuses.
        reason: Why, for the last two.
        gradient: True if the gradient was right as well.
        native: True if it was compiled too.
        error: The largest error.
    """

    name: str
    label: str
    dtype: str
    status: str = "pass"
    reason: str = ""
    gradient: bool = False
    native: bool = False
    error: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def run_sample(sample: Sample, dtype: str, *, native: bool = False, seconds: float = 20.0) -> Row:
    """Run a sample in a type, and its gradient.

    Args:
        sample: The sample.
        dtype: The type's short name.
        native: True to compile it too.
        seconds: Most time for it.
    """
    row = Row(sample.name, sample.label, dtype, native=native)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with _time_limit(seconds):
                arrays = sample.arrays(dtype)
                wanted = _by_jax(sample.function, arrays)
        except (Exception, OutOfTimeError) as error:
            row.status, row.reason = "excluded", f"JAX: {type(error).__name__}"
            return row
        try:
            with _time_limit(seconds):
                _compare(sample, sample.function, arrays, wanted, row)
                if sample.gradient and dtype in TOLERANCES:
                    gradient = _gradient(sample)
                    try:
                        wanted = _by_jax(gradient, arrays)
                    except Exception:  # nothing to differentiate, or JAX cannot
                        return row
                    _compare(sample, gradient, arrays, wanted, row, "gradient: ")
                    row.gradient = True
        except (Exception, OutOfTimeError) as error:
            row.status = "fail"
            row.reason = row.reason or described(error)
    return row


def described(error: BaseException) -> str:
    """An error in a line."""
    text = " ".join(str(error).split())
    if isinstance(error, UnsupportedOpError) and error.because:
        text = " ".join(error.because.split())
    return f"{type(error).__name__}: {text}"[:300]


def has_primitive(sample: Sample, dtype: str, name: str) -> bool:
    """True if the trace of a sample has a primitive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jaxpr = jax.make_jaxpr(sample.function)(*sample.arrays(dtype))
    return name in set(traced(jaxpr.jaxpr))


def _by_jax(function: Callable[..., Any], arrays: list[Any]) -> list[Any]:
    found = [words(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arrays))]
    if any(leaf.dtype.kind == "c" for leaf in found):
        raise TypeError("complex results")
    return found


def _gradient(sample: Sample) -> Callable[..., Any]:
    """The gradient of a weighted sum of the results by the arguments of the sample's type."""
    by = tuple(number for number, a in enumerate(sample.arguments) if isinstance(a, X))

    def total(*arrays: Any) -> Any:
        leaves = [
            leaf for leaf in jax.tree.leaves(sample.function(*arrays)) if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        weights = [jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape) for leaf in leaves]
        return sum(jnp.sum(leaf.astype(jnp.float32) * w) for leaf, w in zip(leaves, weights, strict=True))

    return jax.grad(total, by)


def _compare(
    sample: Sample, function: Callable[..., Any], arrays: list[Any], wanted: list[Any], row: Row, what: str = ""
) -> None:
    limit = sample.tolerance or TOLERANCES.get(row.dtype, TOLERANCES["f32"])
    for way in (read, run) if row.native else (read,):
        got = way(function, *arrays)
        assert len(got) == len(wanted), f"{what}{len(got)} results, not {len(wanted)}"
        for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
            problem, error = difference(ours, theirs, limit)
            if (
                problem is not None
                and row.dtype in ("f16", "bf16")
                and _is_nearer(function, arrays, number, ours, theirs)
            ):
                problem, error = None, 0.0
            row.error = max(row.error, error)
            assert problem is None, f"{what}{'compiled: ' if way is run else ''}{problem}"


def _is_nearer(function: Callable[..., Any], arrays: list[Any], number: int, ours: Any, theirs: Any) -> bool:
    """True if our result is no farther from JAX's in f32 than JAX's in the narrow type is, up to rounding."""
    try:
        exact = _by_jax(function, [a.astype(jnp.float32) if a.dtype.itemsize == 2 else a for a in arrays])[number]
    except Exception:  # the function has a type of its own
        return False
    a, b, c = (np.asarray(v).astype(np.float64) for v in (ours, theirs, exact))
    if a.shape != c.shape or not np.isfinite(a).all() or not np.isfinite(c).all():
        return False
    worst = np.abs(np.where(np.isfinite(b), b, np.inf) - c).max()
    return bool(np.abs(a - c).max() <= worst * 1.5)


def difference(ours: Any, theirs: Any, limit: float) -> tuple[str | None, float]:
    """Problem of a result, if it has one, and its largest error."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}", 0.0
    if theirs.dtype.kind in "biu":
        wrong = np.flatnonzero(ours != theirs)
        if not wrong.size:
            return None, 0.0
        return f"{wrong.size} of {ours.size} differ: {ours.flat[wrong[0]]} for {theirs.flat[wrong[0]]}", float("inf")
    if not ours.size:
        return None, 0.0
    if theirs.dtype.itemsize == 2:
        # Numbers beyond the type's largest may round to infinity on one side alone.
        limit = max(limit, TOLERANCES["f16" if theirs.dtype.name == "float16" else "bf16"])
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    wrong = np.flatnonzero(error > limit * (np.abs(np.where(finite, b, 0.0)) + 0.2 * scale))
    largest = float((error / scale).max())
    if not wrong.size:
        return None, largest
    return f"{wrong.size} of {a.size} differ: {a.flat[wrong[0]]:.6g} for {b.flat[wrong[0]]:.6g}", largest


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` inside after some processor time."""

    def out(*_: object) -> None:
        raise OutOfTimeError(f"takes more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, out)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
