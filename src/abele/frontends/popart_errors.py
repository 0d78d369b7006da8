"""The exception of PopART that programs of PopART and of PopXL catch."""

from __future__ import annotations

from abele.errors import AbeleError


class popart_exception(AbeleError):  # noqa: N801, N818
    """Something of a program, a model or an option that PopART refuses."""


__all__ = ["popart_exception"]
