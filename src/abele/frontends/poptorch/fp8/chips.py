"""Chips without products of 8-bit floats, and models that have such products."""

from __future__ import annotations

from abele.errors import TypeMismatchError
from abele.machine import System
from abele.network import Network
from abele.words import counted


def check_products(net: Network, system: System) -> None:
    """Refuse products of 8-bit floats on a chip that has none, unless they may be computed in float16.

    Libraries below refuse them too, in words of their own options; here the remedy is one that a PyTorch program has.

    Raises:
        TypeMismatchError: There are some, and not all of them may be converted.
    """
    if system.ipu.converts_quarters:
        return
    refused = [op for op in net.walk() if op.kind == "matmul_pow2scaled" and not op.attrs["converts"]]
    if not refused:
        return
    raise TypeMismatchError(
        f"{system.ipu.name} does not multiply 8-bit floats; the model has {counted(len(refused), 'product')} of them",
        at=str(refused[0].debug),
        because="its matrix units have no mode for them; C600 has",
        remedy="options.Abele.system('c600') · allow_conversion=True, of fp8.Fp8Recipe or of fp8.matmul_pow2scaled, "
        "which computes them in float16",
    )
