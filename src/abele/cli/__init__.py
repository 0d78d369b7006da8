"""The ``abele`` command."""

from abele.cli.main import main

__all__ = ["main"]
