"""Modules of LLVM code, their functions and blocks, and other named objects."""

from __future__ import annotations

import re
from collections.abc import Sequence

from abele.llvm.ir.types import FunctionType, PointerType, Type
from abele.llvm.ir.values import ArgumentValue, CodeValue, Constant, InstructionValue

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NodeReference:
    """A node of metadata, by its number.

    Attributes:
        ref: Text by which others refer to it.
    """

    def __init__(self, number: int) -> None:
        self.ref = f"!{number}"


class CodeModule:
    """Code that is compiled together.

    Attributes:
        name: For readers.
        globals: Functions and variables by name.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.globals: dict[str, CodeFunction | GlobalVariable] = {}
        self._nodes: dict[str, NodeReference] = {}

    def add_metadata(self, parts: Sequence[str | NodeReference | Constant]) -> NodeReference:
        """The node of ``parts``: strings, nodes or constants."""
        content = f"!{{{', '.join(map(_part_text, parts))}}}"
        return self._nodes.setdefault(content, NodeReference(len(self._nodes)))

    def __str__(self) -> str:
        nodes = (f"{node.ref} = {content}" for content, node in self._nodes.items())
        return "\n".join([*map(str, self.globals.values()), *nodes, ""])


class GlobalVariable(CodeValue):
    """A variable of the module.

    Attributes:
        value_type: Type of its content.
        linkage: Linkage: visibility to other modules.
        global_constant: True if it does not change.
        initializer: Initial content.
    """

    def __init__(self, module: CodeModule, type_: Type, name: str) -> None:
        super().__init__(PointerType(), f'@"{escaped(name)}"')
        self.value_type = type_
        self.linkage = ""
        self.global_constant = False
        self.initializer: Constant | None = None
        _add(module, name, self)

    def __str__(self) -> str:
        held = self.initializer.typed if self.initializer is not None else self.value_type.text
        linkage = self.linkage or ("" if self.initializer is not None else "external")
        kind = "constant" if self.global_constant else "global"
        return f"{self.ref} = {linkage}{' ' * bool(linkage)}{kind} {held}"


class CodeFunction(CodeValue):
    """A function; without blocks it is declared only.

    Attributes:
        module: Module that it is in.
        name: Its symbol.
        function_type: Types of its arguments and result.
        args: Its arguments.
        linkage: Linkage: visibility to other modules.
        attributes: Attributes for LLVM, as text.
        blocks: Its code, the block where it begins first.
    """

    def __init__(self, module: CodeModule, type_: FunctionType, name: str) -> None:
        super().__init__(PointerType(type_), f'@"{escaped(name)}"')
        self.module = module
        self.name = name
        self.function_type = type_
        self.args = tuple(ArgumentValue(t, f"%a{n}") for n, t in enumerate(type_.args))
        self.linkage = ""
        self.attributes = ""
        self.blocks: list[CodeBlock] = []
        self._number = 0
        _add(module, name, self)

    def append_basic_block(self, name: str = "") -> CodeBlock:
        """A new block at the end."""
        block = CodeBlock(self, self.label(name))
        self.blocks.append(block)
        return block

    def label(self, hint: str = "") -> str:
        """A name that nothing else in the function has."""
        self._number += 1
        if not hint:
            return f"v{self._number}"
        return f"{hint}.{self._number}" if _PLAIN.fullmatch(hint) else f'"{escaped(hint)}.{self._number}"'

    def __str__(self) -> str:
        head = f"{self.function_type.result.text} {self.ref}"
        if not self.blocks:
            return f"declare {head}({', '.join(t.text for t in self.function_type.args)})"
        linkage = f"{self.linkage} " if self.linkage else ""
        attributes = f" {self.attributes}" if self.attributes else ""
        lines = [f"define {linkage}{head}({', '.join(map(str, self.args))}){attributes}", "{"]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines += map(str, block.instructions)
        return "\n".join([*lines, "}"])


class CodeBlock:
    """Instructions that run one after the other.

    Attributes:
        function: Function that it is in.
        label: Its name.
        ref: Text by which instructions refer to it.
        instructions: Its lines.
        is_terminated: True if its last instruction leaves it.
    """

    def __init__(self, function: CodeFunction, label: str) -> None:
        self.function = function
        self.label = label
        self.ref = f"%{label}"
        self.instructions: list[InstructionValue] = []
        self.is_terminated = False


def escaped(name: str) -> str:
    """``name`` between quotes of LLVM: special characters as two hexadecimal digits."""
    if name.isascii() and name.isprintable() and '"' not in name and "\\" not in name:
        return name
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02x}" for byte in name.encode())


def _part_text(part: str | NodeReference | Constant) -> str:
    if isinstance(part, NodeReference):
        return part.ref
    return part.typed if isinstance(part, Constant) else f'!"{escaped(part)}"'


def _add(module: CodeModule, name: str, item: CodeFunction | GlobalVariable) -> None:
    assert name not in module.globals, f"the module has {name!r} already"
    module.globals[name] = item
