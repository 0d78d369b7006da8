"""Executables as files: a documented, versioned format of plain data."""

from abele.compiler.store.executables import load_executable, save_executable

__all__ = ["load_executable", "save_executable"]
