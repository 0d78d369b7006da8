"""Bytecode as text, one instruction per line, the same in every process: leaves by name, addresses by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from abele.arrays import Int64
from abele.runtime.control.bytecode import Opcode

_OPERANDS: dict[Opcode, str] = {
    Opcode.HALT: "",
    Opcode.CALL: "leaf units arguments - cuts",
    Opcode.COUNT: "leaf units arguments counter cuts",
    Opcode.SOLO: "leaf units arguments",
    Opcode.BARRIER: "stop",
    Opcode.LOOP: "register count pc",
    Opcode.NEXT: "register pc",
    Opcode.JUMP: "pc",
    Opcode.BRANCH: "address mask value pc",
    Opcode.JSR: "pc register",
    Opcode.RET: "register",
    Opcode.CALLBACK: "callback",
    Opcode.FETCH: "stream bytes register",
    Opcode.DRAIN: "stream",
    Opcode.BIND: "register register",
    Opcode.TALLY: "address add",
    Opcode.CASE: "address mask value pc",
    Opcode.ROWS: "address count limit pc",
    Opcode.ELAPSED: "address address address add",
    Opcode.MODE: "address mask set",
    Opcode.SEEDED: "leaf units arguments address cuts",
    Opcode.ADVANCE: "register add",
    Opcode.ROW: "register address stride address",
    Opcode.ALONE: "on pc",
    Opcode.TOGETHER: "on pc",
}
"""Operands of each operation, in order."""


def listing(code: Int64, leaves: Mapping[int, str]) -> str:
    """The code as text.

    Args:
        code: The instructions, int64[instructions, 8].
        leaves: Names of leaves, by the first register of their arguments.
    """
    addresses: dict[int, str] = {}
    return "\n".join(
        f"{number:5d}  {' '.join(_words(Opcode(op), operands, leaves, addresses))}".rstrip()
        for number, (op, *operands) in enumerate(code.tolist())
    )


def _words(op: Opcode, operands: list[int], leaves: Mapping[int, str], addresses: dict[int, str]) -> Iterator[str]:
    """An instruction in words. Addresses are numbered as they come up."""
    kinds = _OPERANDS[op].split()
    yield f"{op.name:<8}"
    for kind, word in zip(kinds, operands, strict=False):
        match kind:
            case "register":
                yield f"r{word}"
            case "arguments":
                yield f"{leaves.get(word, 'leaf')!r} r{word}"
            case "pc":
                yield f"-> {word}"
            case "address" | "counter":
                yield addresses.setdefault(word, f"@{len(addresses)}")
            case "mask":
                yield f"mask {word & (1 << 64) - 1:#x}"
            case "cuts":
                yield from ["cut by cost"] * bool(word)
            case "stop":
                yield from ["may stop"] * bool(word)
            case "on":
                yield "thread 0 alone" if word else "all threads"
            case "leaf" | "-":
                pass
            case _:
                yield f"{kind} {word:,}"
