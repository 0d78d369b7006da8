"""``python -m abele.popxl program.py …``: run a program that imports ``popxl`` and ``popxl_addons``."""

from __future__ import annotations

import sys

from abele.frontends.program_runner import run_program
from abele.popxl import install


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    run_program("usage: python -m abele.popxl (program.py | -m module) [arguments]", sys.argv[1:], install)


if __name__ == "__main__":
    main()
