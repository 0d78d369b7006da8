"""``python -m abele.jax program.py …``: run a program whose ``jax.jit`` is ours, or that imports ``tessellate_ipu``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from abele.frontends.jax.tessellate.names import install


def main() -> None:
    """Run the program with the arguments after its name, as Python itself would."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit("usage: python -m abele.jax (program.py | -m module) [arguments]")
    install()
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
