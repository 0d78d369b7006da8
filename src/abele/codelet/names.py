"""Names of vertices, however they are spelled: spaces, suffixes of numbers and long names of types mean nothing."""

from __future__ import annotations

import re
from functools import lru_cache

_TIGHT = re.compile(r"\s*([<>,()*&\[\]]|::)\s*")
_WORD = re.compile(r"[0-9][\w']*|'(?:[^'\\]|\\.[^']*)'|::|[<>,()*&\[\]]|[^\s<>,()*&\[\]':]+|:|'")
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F']+|0[bB][01']+|[0-9][0-9']*)([uUlLzZ]*)")
_LONGEST_NUMBER = 100
"""Characters of a number; a longer one is no template argument."""
_FIXED = {
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    "int64_t": "longlong",
    "uint64_t": "unsigned longlong",
    "_Float16": "half",
}
_PARTS = frozenset(["unsigned", "signed", "int", "short", "long", "longlong", "char"])


@lru_cache(maxsize=4096)
def normalised(name: str) -> str:
    """Registered form of a vertex name: ``X< 16u, unsigned, long long >`` is ``X<16,unsigned int,longlong>``."""
    if "<" not in name:
        return re.sub(r"\s+", " ", _TIGHT.sub(r"\1", name.strip()))
    words = _with_whole_types([_number(w) for w in _WORD.findall(name)])
    return _joined(words).replace("<>", "")


def _number(word: str) -> str:
    found = _INTEGER.fullmatch(word)
    if found is None or len(word) > _LONGEST_NUMBER:
        return word
    digits = found[2].replace("'", "")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    value = int(digits, 8 if octal and set(digits) <= set("01234567") else 10 if octal else 0)
    return f"{'-' if found[1] == '-' and value else ''}{value}"


def _with_whole_types(words: list[str]) -> list[str]:
    """Words with types of several words made one: ``long unsigned int`` and ``std::uint8_t`` by their usual names."""
    found: list[str] = []
    parts: list[str] = []
    for word in [*words, ""]:
        if word in _PARTS:
            parts.append(word)
            continue
        if parts:
            found.append(_type(parts))
            parts = []
        if word in _FIXED:
            if found[-2:] == ["std", "::"]:
                del found[-2:]
            if found[-1:] != ["::"]:
                word = _FIXED[word]
        found.append(word)
    return found[:-1]


def _type(parts: list[str]) -> str:
    unsigned = "unsigned " if "unsigned" in parts else ""
    if "char" in parts:
        return "unsigned char" if unsigned else "signed char" if "signed" in parts else "char"
    if "short" in parts:
        return f"{unsigned}short"
    longs = parts.count("long") + 2 * parts.count("longlong")
    return unsigned + ("int", "long", "longlong")[min(longs, 2)]


def _joined(words: list[str]) -> str:
    """Words next to one another; a space stays between two names."""
    text = ""
    for word in words:
        apart = text and (text[-1].isalnum() or text[-1] == "_") and (word[0].isalnum() or word[0] == "_")
        text += f" {word}" if apart else word
    return text
