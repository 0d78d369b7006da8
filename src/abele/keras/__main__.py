"""``python -m abele.keras program.py …``: run a program that imports ``tensorflow``, unchanged."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

from abele.keras import install

_USAGE = "usage: python -m abele.keras [--shadow] (program.py | -m module) [arguments]"
_OLDER = "Do not pass an `input_shape`"
"""Words of Keras 3 about arguments that every program of Keras 2 has."""


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    arguments = sys.argv[1:]
    shadow = arguments[:1] == ["--shadow"]
    arguments = arguments[shadow:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(_USAGE)
    install(shadow=shadow)
    warnings.filterwarnings("ignore", message=_OLDER)
    if arguments[0] == "-m" and len(arguments) > 1:
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
