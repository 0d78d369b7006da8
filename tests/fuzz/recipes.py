"""Recipes: what is changed in a file, as data that can be kept, and drawn at random."""

from __future__ import annotations

import io
import json
import random
import warnings
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = (1 << 63) - 1
BIG = (1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30, (1 << 31) - 1, (1 << 31) + 1, 1 << 40)
NEAR = (0, 1, 2, 3, 5, 29, 30, 31, 119, 120)
INTEGERS = (0, 1, -1, 2, 3, 7, 100, 1000, 65536, 1 << 20, *BIG, *(-n for n in BIG), -2)
FLOATS = (0.5, -0.0, 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    "x",
    "f32",
    "f16",
    "i8",
    "i64",
    "bool",
    "quarter",
    "x" * 5000,
    "\x1b[2J\x07",
    "\u202eabc",
    "a\nb",
    "[/nope][red]",
    "../../x",
    "sentinel0",
    "in",
    "out",
    "state",
    "none",
    "\U0001f600",
)
OTHERS = (None, True, False, [], {}, [[]], {"is": "Const"}, [0, 0], {"map": []})


@dataclass(frozen=True)
class Recipe:
    """A file by name, and what is changed in it, one after the other."""

    base: str
    edits: tuple[tuple[Any, ...], ...]

    def text(self) -> str:
        return json.dumps([self.base, *self.edits])

    @staticmethod
    def of(text: str) -> Recipe:
        base, *edits = json.loads(text)
        return Recipe(base, tuple(map(tuple, edits)))


# --- applying --------------------------------------------------------------------------------------------------------


def changed(recipe: Recipe, content: bytes) -> bytes:
    """A file with a recipe's changes; those that do not fit it are left out."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    last = [edit for edit in recipe.edits if edit[0] in ("flip", "cut")]
    for edit in recipe.edits:
        if edit not in last:
            members = _edited(members, edit)
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        warnings.simplefilter("ignore")
        for name, data in members:
            archive.writestr(name, data)
    result = target.getvalue()
    for kind, *parts in last:
        if kind == "cut":
            result = result[: parts[0] % len(result)]
        else:
            at = parts[0] % len(result)
            result = result[:at] + bytes([result[at] ^ parts[1]]) + result[at + 1 :]
    return result


Members = list[tuple[str, bytes]]


def _edited(members: Members, edit: tuple[Any, ...]) -> Members:
    kind, *parts = edit
    try:
        if kind == "json":
            return [(n, _json(d, *parts) if n.endswith(".json") else d) for n, d in members]
        if kind == "array":
            return [(n, _array(d, *parts[1:]) if n == parts[0] else d) for n, d in members]
        if kind == "named":
            name = _found(_document(members), parts[0])
            return [(n, _array(d, *parts[1:]) if n == name else d) for n, d in members]
        if kind == "drop":
            return [(n, d) for n, d in members if n != parts[0]]
        if kind == "rename":
            return [(parts[1] if n == parts[0] else n, d) for n, d in members]
        if kind == "twice":
            return [*members, *((n, d) for n, d in members if n == parts[0])]
    # An edit that earlier ones have left without an object changes nothing.
    except Exception:
        return members
    return members


def _document(members: Members) -> Any:
    return json.loads(next(data for name, data in members if name.endswith(".json")))


def _found(place: Any, path: list[Any]) -> Any:
    for key in path:
        place = place[key]
    return place


def _json(data: bytes, how: str, path: list[Any], value: Any = None) -> bytes:
    document = json.loads(data)
    *keys, last = path
    place = _found(document, keys)
    if how == "set":
        place[last] = value
    elif how == "delete":
        del place[last]
    elif how == "repeat":
        place[last] = place[last] * value
    elif how == "nest":
        for _ in range(value):
            place[last] = [place[last]]
    return json.dumps(document).encode()


def _array(data: bytes, how: str, *parts: Any) -> bytes:
    if how == "head":
        head = parts[0].encode()
        return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data[-8:]
    array = np.load(io.BytesIO(data))
    flat = array.reshape(-1)
    if how == "element":
        info = np.iinfo(flat.dtype) if flat.dtype.kind in "iu" else None
        value = parts[1] if info is None else int(min(max(parts[1], info.min), info.max))
        with np.errstate(all="ignore"):
            flat[parts[0] % len(flat)] = value
    elif how == "fill":
        with np.errstate(all="ignore"):
            flat[:] = np.array(parts[0]).astype(flat.dtype)
    elif how == "length":
        array = np.resize(flat, parts[0])
    elif how == "type":
        array = array.astype(parts[0])
    elif how == "shape":
        array = array.reshape(-1, *parts[0])
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0))
    return stream.getvalue()


# --- drawing ---------------------------------------------------------------------------------------------------------


def drawn(rng: random.Random, bases: dict[str, bytes]) -> Recipe:
    """A recipe at random; one change mostly, sometimes up to four."""
    base = rng.choice([name for name in bases for _ in range(1 if name.endswith("report") else 2)])
    count = rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
    with zipfile.ZipFile(io.BytesIO(bases[base])) as archive:
        names = archive.namelist()
        document = json.loads(archive.read(next(n for n in names if n.endswith(".json"))))
    arrays = [n for n in names if n.endswith(".npy")]
    wiring = _wiring(document)
    edits = tuple(_edit(rng, document, wiring if wiring and rng.random() < 0.5 else arrays) for _ in range(count))
    return Recipe(base, edits)


def _wiring(document: Any) -> list[str]:
    """The arrays from which native code takes its addresses, lengths and bounds."""
    if not document.get("graph", {}).get("regions"):
        return []
    graph = document["graph"]
    tables: list[Any] = [graph["regions"]]
    for _, groups in graph["compute_sets"]:
        tables += [[g["edges"], g["state"]] for g in groups]
    return [name for name in _texts(tables) if name.endswith(".npy")]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def _edit(rng: random.Random, document: Any, arrays: list[str]) -> tuple[Any, ...]:
    kind = rng.random()
    name = rng.choice(arrays)
    if kind < 0.55:
        return _json_edit(rng, document)
    if kind < 0.93:
        return ("array", name, *_array_edit(rng))
    return rng.choice(
        [
            ("drop", name),
            ("rename", name, rng.choice(("a0.npy", "../x.npy", "A.npy", "x" * 300 + ".npy"))),
            ("twice", name),
            ("flip", rng.randrange(1 << 30), rng.randrange(1, 256)),
            ("cut", rng.randrange(1 << 30)),
        ]
    )


def _json_edit(rng: random.Random, document: Any) -> tuple[Any, ...]:
    path: list[Any] = []
    place = document
    while isinstance(place, (list, dict)) and place and (not path or rng.random() < 0.97):
        key = rng.randrange(len(place)) if isinstance(place, list) else rng.choice(list(place))
        path.append(key)
        place = place[key]
    how = rng.random()
    if how < 0.06:
        return ("json", "delete", path)
    if how < 0.1 and isinstance(place, (list, str)):
        return ("json", "repeat", path, rng.choice((0, 2, 1000)))
    if how < 0.12:
        return ("json", "nest", path, rng.choice((1, 50, 400)))
    return ("json", "set", path, _value(rng, place))


def _value(rng: random.Random, old: Any) -> Any:
    if rng.random() < 0.12:
        return rng.choice((*OTHERS, *TEXTS, *INTEGERS, *FLOATS))
    if isinstance(old, bool):
        return rng.choice((not old, 2, None))
    if isinstance(old, (int, float)):
        near = (old + 1, old - 1, -old, 2 * old)
        return rng.choice((*near, *near, *near, *INTEGERS, *FLOATS))
    return rng.choice(TEXTS) if isinstance(old, str) else rng.choice(OTHERS)


def _array_edit(rng: random.Random) -> tuple[Any, ...]:
    kind = rng.random()
    if kind < 0.7:
        return (
            "element",
            rng.randrange(1 << 20),
            rng.choice((0, 1, 2, 3, 5, 29, 30, 31, 119, 120, LARGEST, LARGEST, *INTEGERS)),
        )
    if kind < 0.78:
        return ("fill", rng.choice((0, 1, -1, 2, 1 << 31, (1 << 63) - 1, -(1 << 63))))
    if kind < 0.88:
        return ("length", rng.choice((0, 1, 2, 3, 5, 200, 100_000)))
    if kind < 0.93:
        return ("type", rng.choice(("<i4", "<i8", "<u8", "<f4", "<f8", "|b1", "<c16", "|S4")))
    if kind < 0.95:
        return ("shape", rng.choice(([1], [1, 1])))
    return ("head", rng.choice(HEADS))


HEADS = (
    "",
    "{",
    "'''",
    "(" * 5000,
    "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }\n",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }\n",
    "{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,), }\n",
    "{'descr': '<i8', 'fortran_order': True, 'shape': (1,), 'x': 1}\n",
)
