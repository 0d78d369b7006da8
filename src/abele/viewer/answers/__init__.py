"""Questions of the page: importing this registers those of every module of the folder."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from abele.viewer.answers.registry import QUESTIONS, Question, answer

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["QUESTIONS", "Question", "answer"]
