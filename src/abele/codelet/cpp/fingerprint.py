"""Fingerprints of this compiler's versions, so that no code made by another one is ever used."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def fingerprint() -> str:
    """A digest of the sources that code depends on: codelets, our C++ headers, LLVM tools, element types."""
    here = Path(__file__).parent
    package = here.parent.parent
    digest = hashlib.sha256()
    for folder in (here.parent, here, package / "llvm", package / "numerics"):
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    for file in sorted((here / "include").rglob("*")):
        if file.is_file():
            digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()
