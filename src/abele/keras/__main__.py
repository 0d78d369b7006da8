"""``python -m abele.keras program.py …``: run a program that imports ``tensorflow``, unchanged."""

from __future__ import annotations

import sys
import warnings

from abele.frontends.program_runner import run_program
from abele.keras import install

_USAGE = "usage: python -m abele.keras [--shadow] (program.py | -m module) [arguments]"
_OLDER = "Do not pass an `input_shape`"
"""Words of Keras 3 about arguments that every program of Keras 2 has."""


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    shadow = sys.argv[1:2] == ["--shadow"]

    def prepare() -> None:
        install(shadow=shadow)
        warnings.filterwarnings("ignore", message=_OLDER)

    run_program(_USAGE, sys.argv[1 + shadow :], prepare)


if __name__ == "__main__":
    main()
