"""Products of matrices that are turned when they are made: ``(A · B)ᵀ`` is ``Bᵀ · Aᵀ``.

Traces write the gradient of a weight [in, out] as ``(gradᵀ · x)ᵀ``; as ``xᵀ · grad`` it can be made where the weight
lies.
"""

from __future__ import annotations

from collections.abc import Iterator

from abele.network.ir import NetworkOp, Value
from abele.network.ops import build
from abele.network.recognition.region import Appender, Emit, Replacements, Uses


def find_turned_products(uses: Uses) -> Iterator[Replacements]:
    """Products of a block of which only the transposed one is read."""
    for op in uses.ops:
        is_product = op.kind == "matmul" or (op.kind == "linear" and len(op.inputs) == 2)
        if is_product and op.output not in uses.results:
            readers = uses.readers.get(op.output, [])
            turned = (*range(op.output.ndim - 2), op.output.ndim - 1, op.output.ndim - 2)
            if len(readers) == 1 and readers[0].kind == "permute" and readers[0].attrs["order"] == turned:
                yield Replacements({readers[0].output: _turned(op)})


def _turned(op: NetworkOp) -> Emit:
    def make(to: Appender) -> Value:
        left, right = (to.values[v] for v in op.inputs)
        # The second operand of `linear` is turned already.
        second = right if op.kind == "linear" else build.transpose(to.net, right)
        return build.matmul(to.net, second, build.transpose(to.net, left))

    return make
