"""``python -m abele.jax program.py …``: run a program whose ``jax.jit`` is ours, or that imports ``tessellate_ipu``."""

from __future__ import annotations

import sys

from abele.frontends.jax.tessellate.names import install
from abele.frontends.program_runner import run_program


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    run_program("usage: python -m abele.jax (program.py | -m module) [arguments]", sys.argv[1:], install)


if __name__ == "__main__":
    main()
