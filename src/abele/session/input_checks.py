"""Checks of integer inputs on the host before a run: what must fit in 32 bits, and what must lie within bounds.

The device has no 64-bit integers, and would pay a comparison for each element to notice an index out of range. But
integers that follow from inputs and constants alone can be had on the host as well, in 64 bits: where a network does
arithmetic on such integers, or asks for a bound, those ops are evaluated once more in NumPy, and nothing else is.
Integers that come from floats are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from abele.arrays import Array
from abele.errors import ElementRangeError, TensorIndexError
from abele.network.ir import AllowedRange, Network, NetworkBuilder, NetworkOp, Value
from abele.network.ops.replicas import ReplicaRule
from abele.network.registry import rule_of
from abele.numerics import bool_
from abele.words import plural

INT32 = range(-(2**31), 2**31)

_MOVES = frozenset({"constant", "reshape", "permute", "expand", "slice", "concat", "detach"})
"""Ops whose results hold only values of their inputs."""


def known_on_host(net: Network | NetworkBuilder) -> set[Value]:
    """Integer and bool values that follow from inputs and constants alone."""
    known = {v for v in (*net.inputs, *net.constants) if not v.dtype.is_float}
    for op in net.ops:
        local = op.inputs and not op.blocks and not isinstance(rule_of(op), ReplicaRule)
        if local and known.issuperset(op.inputs) and not any(v.dtype.is_float for v in op.outputs):
            known.update(op.outputs)
    return known


class InputChecks:
    """Constraints on the integers among the inputs of a network.

    Args:
        net: The network as it was captured.
    """

    def __init__(self, net: Network) -> None:
        known = known_on_host(net)
        self._net = net
        self._bounds = [b for b in net.bounds if b.value in known]
        self._arithmetic = {
            v: op for op in net.ops if op.kind not in _MOVES for v in op.outputs if v in known and v in net.wide
        }
        needed = net.needed([*self._arithmetic, *(b.value for b in self._bounds)])
        self._ops = [op for op in needed if op.kind != "constant"]
        self._whole = not self._ops

    def check(self, inputs: Sequence[Array], micro_batches: int) -> None:
        """Look at the inputs of one run.

        Args:
            inputs: The whole host batch of every input, in their own types.
            micro_batches: Number of micro-batches that the device makes of it.

        Raises:
            ElementRangeError: An integer that does not fit in 32 bits.
            TensorIndexError: One outside its bounds.
        """
        for value, array in zip(self._net.inputs, inputs, strict=True):
            if array.dtype.itemsize > 4 and array.dtype.kind in "iu":
                _check_width(array, f"the input {value.name}", None)
        if not self._bounds and not self._ops:
            return
        whole = dict(zip(self._net.inputs, inputs, strict=True))
        for arrays in [whole] if self._whole else _cut(whole, micro_batches):
            self._check_micro_batch(arrays)

    def _check_micro_batch(self, inputs: Mapping[Value, Array]) -> None:
        values = {**self._net.constants, **inputs}
        for op in self._ops:
            for value, result in zip(op.outputs, _evaluated(op, [values[v] for v in op.inputs]), strict=True):
                values[value] = result
                if value in self._arithmetic:
                    _check_width(result, f"a result of {op.debug.name}", str(op.debug.location) or None)
        for bound in self._bounds:
            _check_bound(bound, values[bound.value])


def _cut(inputs: Mapping[Value, Array], micro_batches: int) -> Iterator[dict[Value, Array]]:
    """The inputs of every micro-batch."""
    parts = {v: np.reshape(a, (micro_batches, *v.shape)) for v, a in inputs.items()}
    for number in range(micro_batches):
        yield {value: part[number] for value, part in parts.items()}


def _evaluated(op: NetworkOp, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of an op on integers, in 64 bits."""
    wide = [a if a.dtype == bool else a.astype(np.int64, copy=False) for a in inputs]
    made = rule_of(op).evaluate(op, *wide)
    results = made if len(op.outputs) > 1 else [made]
    return [
        np.asarray(result).astype(bool if value.dtype == bool_ else np.int64, copy=False)
        for value, result in zip(op.outputs, results, strict=True)
    ]


def _check_width(array: Array, what: str, at: str | None) -> None:
    """Raise unless integers fit in 32 bits."""
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low not in INT32 or high not in INT32:
            raise ElementRangeError(
                f"{what} is {low if low not in INT32 else high}, which does not fit in the 32 bits that integers have "
                "on the device",
                at=at,
                because="int64 tensors are int32 there",
                remedy="keep integers within ±2³¹, or compute with float32",
            )


def _check_bound(bound: AllowedRange, array: Array) -> None:
    outside = (array < bound.lowest) | (array >= bound.limit)
    if bound.exception is not None:
        outside &= array != bound.exception
    if outside.any():
        number = int(array[outside].flat[0])
        place = [int(n) for n in np.argwhere(outside)[0]]
        but = "" if bound.exception is None else f", or {bound.exception} for those that do not count"
        raise TensorIndexError(
            f"{bound.what} {number} of {bound.debug.name or 'the network'} is out of bounds: there are {bound.limit:,}",
            at=str(bound.debug.location) or None,
            because=f"element {place} of {list(array.shape)}",
            remedy=f"{plural(bound.what)} of {bound.lowest} to {bound.limit - 1}{but}",
        )
