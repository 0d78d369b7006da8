"""Attributes of ops as text that reads back: numbers, words, lists, records, expressions, functions and contents."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from abele.expr import TABLE, Apply, Cast, Const, Expr, Load
from abele.network.ir.frozen import Dense
from abele.network.ir.op import NetworkFunction
from abele.network.ir.tokens import Token, Tokens, number_text, quoted, string_text
from abele.network.ir.value import Shape
from abele.numerics import ElementType, as_element_type, bool_, f32, i32
from abele.sparsity import Pattern, grid_of

# Element-wise expressions as text that reads back: ``$0 * exp($1 + 2.0)``, where ``$i`` is an element of operand i.
#
# Operators bind as in Python, with one level for each sign and parentheses wherever two of them meet. A number is f32
# if it has a point (or is ``inf`` or ``nan``) and i32 if not, unless a type follows: ``3:u32``.

SIGNS = {op.symbol: name for name, op in TABLE.items() if op.symbol is not None}
"""The operation that each infix sign stands for."""


def expression_text(expression: Expr) -> str:
    """An expression over ``derivative.arg(i)`` as text."""
    match expression:
        case Load():
            return f"${expression.operand}"
        case Const():
            return _const_text(expression)
        case Cast():
            return f"{expression.type}({expression_text(expression.arg)})"
        case Apply():
            sign = TABLE[expression.op].symbol
            if sign is None:
                return f"{expression.op}({', '.join(map(expression_text, expression.args))})"
            left, right = (_operand_text(a) for a in expression.args)
            return f"{left} {sign} {right}"
    raise TypeError(f"{expression!r} is no element-wise expression")


def _operand_text(expression: Expr) -> str:
    text = expression_text(expression)
    return f"({text})" if isinstance(expression, Apply) and TABLE[expression.op].symbol is not None else text


def _const_text(const: Const) -> str:
    text = number_text(const.value)
    return text if _type_of_number(const.value) == const.type else f"{text}:{const.type}"


def _type_of_number(value: float | int | bool) -> ElementType:
    if isinstance(value, bool):
        return bool_
    return i32 if isinstance(value, int) else f32


def read_expression(tokens: Tokens) -> Expr:
    """The expression that comes next.

    Raises:
        NetworkTextError: It is none.
    """
    with tokens.nested():
        left = _read_operand(tokens)
        while tokens.peek().text in SIGNS and tokens.peek().kind == "sign":
            op = SIGNS[tokens.next().text]
            left = Apply(op, (left, _read_operand(tokens)))
        return left


def _read_operand(tokens: Tokens) -> Expr:
    token = tokens.peek()
    if token.kind == "operand":
        tokens.next()
        return Load(int(token.text[1:]), ())
    if tokens.take("("):
        inner = read_expression(tokens)
        tokens.expect(")")
        return inner
    if token.kind == "number" or token.text in ("true", "false", "inf", "nan"):
        value = tokens.number()
        dtype = tokens.element_type() if tokens.take(":") else _type_of_number(value)
        return Const(value, dtype)
    return _read_call(tokens)


def _read_call(tokens: Tokens) -> Expr:
    name = tokens.expect_kind("name", "an expression")
    tokens.expect("(")
    args = [read_expression(tokens)]
    while tokens.take(","):
        args.append(read_expression(tokens))
    tokens.expect(")")
    if name.text in TABLE and len(args) == TABLE[name.text].arity:
        return Apply(name.text, args)
    if len(args) == 1 and name.text not in TABLE:
        with tokens.explaining(name):
            return Cast(as_element_type(name.text), args[0])
    raise tokens.error(f"no element-wise operation {name.text!r} of {len(args)} operands", name)


INLINE_ELEMENTS = 16
"""Contents of more elements than this are written at the end of the text."""

LARGEST_CONTENTS = 2**31
"""Bytes of contents that a text may ask for."""


@cache
def records() -> dict[str, type]:
    """The dataclasses that attributes may be, by name."""
    from abele.network.automatic_scale import AutomaticLossScale
    from abele.network.ir.op import ConvGroup, PlanHint
    from abele.network.ops.sparse_slots import SlotPlan
    from abele.network.optimisers import RULES
    from abele.poplibs.poplin.conv_params.params import ConvParams
    from abele.poplibs.popnn.pool_params import PoolParams

    return {
        record.__name__: record
        for record in (ConvParams, PoolParams, ConvGroup, PlanHint, AutomaticLossScale, SlotPlan, *RULES)
    }


class Data:
    """Long contents of constants, written once at the end of a text under a name made from their bits."""

    def __init__(self) -> None:
        self._named: dict[str, Dense] = {}

    def name(self, contents: Dense) -> str:
        """The name of ``contents``, which are kept."""
        digest = hashlib.sha256(repr(contents.key[:3]).encode() + contents.key[3]).hexdigest()
        name = f"d{digest[:12]}"
        self._named[name] = contents
        return name

    def lines(self) -> list[str]:
        """The part of the text that has them."""
        if not self._named:
            return []
        rows = []
        for name, dense in self._named.items():
            packed = base64.b64encode(zlib.compress(np.ascontiguousarray(dense.contents).tobytes())).decode()
            rows.append(f"  @{name} = {quoted(packed)}")
        return ["", "data {", *rows, "}"]


def attribute_text(value: Any, data: Data) -> str:
    """One attribute."""
    match value:
        case bool() | int() | float():
            return number_text(value)
        case None:
            return "none"
        case str():
            return string_text(value)
        case Expr():
            return f"{{{expression_text(value)}}}"
        case NetworkFunction():
            return f"@{value.name}"
        case Dense():
            return f"dense({_contents_text(value, data)})"
        case tuple() | list():
            return f"[{', '.join(attribute_text(v, data) for v in value)}]"
        case frozenset():
            return f"set[{', '.join(sorted(attribute_text(v, data) for v in value))}]"
        case ElementType():
            return f"type({value})"
        case Pattern():
            return _pattern_text(value, data)
    if is_dataclass(value) and type(value).__name__ in records():
        return _record_text(value, data)
    raise TypeError(f"{value!r} is no attribute of an op")


def _record_text(record: Any, data: Data) -> str:
    """A dataclass: its name, and the fields that differ from their defaults."""
    parts = []
    for f in fields(record):
        value = getattr(record, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.compare and (default is MISSING or value != default or type(value) is not type(default)):
            parts.append(f"{f.name}={attribute_text(value, data)}")
    return f"{type(record).__name__}({', '.join(parts)})"


def _pattern_text(pattern: Pattern, data: Data) -> str:
    """A pattern: shape, block, and a bit for each block of the grid, row by row."""
    bits = Dense(np.packbits(pattern.mask))
    inline = bits.contents.size <= INLINE_ELEMENTS
    held = quoted(bits.contents.tobytes().hex()) if inline else f"@{data.name(bits)}"
    (rows, columns), (height, width) = pattern.shape, pattern.block
    return f"pattern([{rows}, {columns}], [{height}, {width}], {held})"


def _contents_text(dense: Dense, data: Data) -> str:
    contents = dense.contents
    if contents.size and not any(contents.strides):
        return _element_text(contents.flat[0])
    if contents.size <= INLINE_ELEMENTS:
        return _nested_text(contents)
    return f"@{data.name(dense)}"


def _nested_text(contents: Any) -> str:
    if contents.ndim == 0:
        return _element_text(contents[()])
    return f"[{', '.join(map(_nested_text, contents))}]"


def _element_text(element: Any) -> str:
    """An element: its number, or its bits where the number does not say them (a NaN that is not the usual one)."""
    if element.dtype.kind in "biu":
        return number_text(element.item())
    text = number_text(float(element))
    if np.asarray(float(text)).astype(element.dtype).tobytes() == element.tobytes():
        return text
    return f"bits(0x{element.tobytes()[::-1].hex()})".replace("0x", "x")


# --- reading ----------------------------------------------------------------------------------------------------------


class AttributeReader:
    """Reads attributes.

    Args:
        tokens: The text.
        functions: Functions that were read so far.
        data: Bytes of the contents at the end of the text.
    """

    def __init__(self, tokens: Tokens, functions: Mapping[str, NetworkFunction], data: Mapping[str, bytes]) -> None:
        self.tokens = tokens
        self.functions = functions
        self.data = data

    def read(self, shape: Shape, dtype: ElementType | None) -> Any:
        """The attribute that comes next; contents get the shape and type of the op's result."""
        tokens, token = self.tokens, self.tokens.peek()
        with tokens.nested():
            if token.kind == "number" or token.text in ("true", "false"):
                return tokens.number()
            if tokens.take("{"):
                expression = read_expression(tokens)
                tokens.expect("}")
                return expression
            if token.kind == "symbol":
                return self._function(tokens.next())
            if tokens.take("["):
                return tuple(self._items("]", shape, dtype))
            if token.kind == "name" and tokens.peek(1).text in ("(", "["):
                return self._named(tokens.next(), shape, dtype)
            if tokens.take("none"):
                return None
            return tokens.string()

    def _items(self, end: str, shape: Shape, dtype: ElementType | None) -> list[Any]:
        items: list[Any] = []
        while not self.tokens.take(end):
            items.append(self.read(shape, dtype))
            if not self.tokens.take(","):
                self.tokens.expect(end)
                break
        return items

    def _function(self, token: Token) -> NetworkFunction:
        name = token.text[1:]
        if name not in self.functions:
            raise self.tokens.error(f"no function @{name} comes before", token)
        return self.functions[name]

    def _named(self, token: Token, shape: Shape, dtype: ElementType | None) -> Any:
        tokens = self.tokens
        if token.text == "set":
            tokens.expect("[")
            return frozenset(self._items("]", shape, dtype))
        tokens.expect("(")
        if token.text == "dense":
            return self._dense(token, shape, dtype)
        if token.text == "type":
            made: Any = tokens.element_type()
            tokens.expect(")")
            return made
        if token.text == "pattern":
            return self._pattern(token)
        return self._record(token, shape, dtype)

    def _pattern(self, token: Token) -> Pattern:
        tokens = self.tokens
        shape = self._pair()
        tokens.expect(",")
        block = self._pair()
        tokens.expect(",")
        with tokens.explaining(token):
            rows, columns = grid_of(shape, block)
        size = -(-rows * columns // 8)
        if tokens.peek().kind == "symbol":
            raw = self._raw(tokens.next(), size)
        else:
            word = tokens.peek()
            with tokens.explaining(word):
                raw = bytes.fromhex(tokens.string())
            if len(raw) != size:
                raise tokens.error(
                    f"a grid of {rows:,} x {columns:,} blocks has {size:,} bytes, got {len(raw):,}", word
                )
        tokens.expect(")")
        held = np.unpackbits(np.frombuffer(raw, np.uint8), count=rows * columns).reshape((rows, columns))
        return Pattern.from_dense_mask(held, block)

    def _pair(self) -> tuple[int, int]:
        tokens, token = self.tokens, self.tokens.peek()
        tokens.expect("[")
        first = tokens.number()
        tokens.expect(",")
        second = tokens.number()
        tokens.expect("]")
        if not (type(first) is type(second) is int):
            raise tokens.error(f"two whole numbers are wanted, got {first} and {second}", token)
        return first, second

    def _record(self, token: Token, shape: Shape, dtype: ElementType | None) -> Any:
        tokens = self.tokens
        record = records().get(token.text)
        if record is None:
            raise tokens.error(f"no attribute of kind {token.text!r}", token)
        given: dict[str, Any] = {}
        while not tokens.take(")"):
            name = tokens.expect_kind("name", "a field").text
            tokens.expect("=")
            given[name] = self.read(shape, dtype)
            if not tokens.take(","):
                tokens.expect(")")
                break
        with tokens.explaining(token):
            return record(**given)

    # --- contents -----------------------------------------------------------------------------------------------------

    def _dense(self, token: Token, shape: Shape, dtype: ElementType | None) -> Dense:
        tokens = self.tokens
        if dtype is None:
            raise tokens.error("contents belong to an op with a result", token)
        if tokens.peek().kind == "symbol":
            made = self._from_data(tokens.next(), shape, dtype)
        elif tokens.peek().text == "[":
            elements: list[Any] = []
            self._elements(elements, dtype)
            with tokens.explaining(token):
                made = Dense(np.array(elements, dtype.np).reshape(shape))
        else:
            made = Dense(np.broadcast_to(self._element(dtype), shape))
        tokens.expect(")")
        return made

    def _elements(self, into: list[Any], dtype: ElementType) -> None:
        with self.tokens.nested():
            self.tokens.expect("[")
            while not self.tokens.take("]"):
                if self.tokens.peek().text == "[":
                    self._elements(into, dtype)
                else:
                    into.append(self._element(dtype))
                if not self.tokens.take(","):
                    self.tokens.expect("]")
                    break

    def _element(self, dtype: ElementType) -> Any:
        tokens, token = self.tokens, self.tokens.peek()
        with tokens.explaining(token):
            if tokens.take("bits"):
                tokens.expect("(")
                word = tokens.expect_kind("name", "bits").text
                tokens.expect(")")
                return np.frombuffer(bytes.fromhex(word[1:])[::-1], dtype.np)[0]
            number = tokens.number()
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(number).astype(dtype.np)[()] if dtype.is_float else np.array(number, dtype.np)[()]

    def _from_data(self, token: Token, shape: Shape, dtype: ElementType) -> Dense:
        size = int(np.prod(shape, dtype=object)) * dtype.np.itemsize
        return Dense(np.frombuffer(self._raw(token, size), dtype.np).reshape(shape))

    def _raw(self, token: Token, size: int) -> bytes:
        """So many bytes of the contents at the end of the text."""
        name = token.text[1:]
        if name not in self.data:
            raise self.tokens.error(f"no contents @{name} at the end of the text", token)
        if size > LARGEST_CONTENTS:
            raise self.tokens.error(f"contents of {size:,} bytes are too many", token)
        unpack = zlib.decompressobj()
        try:
            raw = unpack.decompress(self.data[name], size + 1)
        except zlib.error as error:
            raise self.tokens.error(f"the contents @{name} do not unpack: {error}", token) from None
        if len(raw) != size:
            raise self.tokens.error(f"the contents @{name} have another size than {size:,} bytes", token)
        return raw


def read_data(tokens: Tokens) -> dict[str, bytes]:
    """The part of a text that has the contents, if it comes next."""
    found: dict[str, bytes] = {}
    if not tokens.take("data"):
        return found
    tokens.expect("{")
    while not tokens.take("}"):
        name = tokens.expect_kind("symbol", "the name of contents").text[1:]
        tokens.expect("=")
        token = tokens.expect_kind("string", "contents")
        try:
            found[name] = base64.b64decode(token.text[1:-1], validate=True)
        except (binascii.Error, ValueError):
            raise tokens.error("contents that do not read", token) from None
    return found
