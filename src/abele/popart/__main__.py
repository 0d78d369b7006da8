"""``python -m abele.popart program.py …``: run a program that imports ``popart``."""

from __future__ import annotations

import sys

from abele.frontends.program_runner import run_program
from abele.popart import install


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    run_program("usage: python -m abele.popart (program.py | -m module) [arguments]", sys.argv[1:], install)


if __name__ == "__main__":
    main()
