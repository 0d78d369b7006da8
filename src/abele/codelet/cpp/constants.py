"""Floating-point constants among the operands of instructions, as the words that registers hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from abele.codelet.cpp.blocks import Instruction

_ELEMENT = re.compile(r"\b(float|double|half|bfloat) (0x[HRKLM]?[0-9A-Fa-f]+|[-+]?\d[-+.\deE]*)")
_SPLAT = re.compile(r"^<(\d+) x \w+> splat \((.*)\)$")
_ELSEWHERE = ("phi", "getelementptr", "insertvalue", "extractvalue", "ret", "br", "switch")
"""Instructions that take no constants of their own: values of a phi are set before it."""


def constant_words(instruction: Instruction) -> Iterator[int]:
    """Words of 32 bits of the constants that an instruction takes, zeros left out.

    A vector of which all words are one takes it from one register.
    """
    if instruction.opcode in _ELSEWHERE:
        return
    for operand in instruction.operands:
        if not operand.name:
            yield from (w for w in _words(operand.text) if w)


def _words(text: str) -> Iterator[int]:
    splat = _SPLAT.match(text)
    if splat is not None:
        # All lanes alike: two lanes say everything.
        text = f"{splat[2]}, {splat[2]}"
    lanes = [_bits(kind, number) for kind, number in _ELEMENT.findall(text)]
    halves = [bits for width, bits in lanes if width == 16]
    yield from dict.fromkeys(bits for width, bits in lanes if width == 32)
    if len(halves) == 1:
        yield halves[0]
        return
    yield from dict.fromkeys(low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=False))


def _bits(kind: str, number: str) -> tuple[int, int]:
    """Width and bits of one element. LLVM writes floats in decimal, or as the bits of the double that equals them."""
    if number.startswith(("0xH", "0xR")):
        return 16, int(number[3:], 16)
    value = np.uint64(int(number, 16)).view(np.float64) if number.startswith("0x") else np.float64(number)
    if kind in ("half", "bfloat"):
        return 16, int(np.float16(value).view(np.uint16))
    with np.errstate(over="ignore", invalid="ignore"):
        return 32, int(value.astype(np.float32).view(np.uint32))
