"""Codelets in C++: Poplar's vertex classes compiled unchanged, run natively, and counted in issue slots.

- :mod:`~abele.codelet.cpp.loading`: :func:`load_codelets`, from files to codelets.
- :mod:`~abele.codelet.cpp.toolchain`: the compiler's front end, and what it says.
- :mod:`~abele.codelet.cpp.reflect`: vertex classes and their fields, from debug information.
- :mod:`~abele.codelet.cpp.optimise`, ``extract``, ``check``: one plain function per vertex, and what it may contain.
- :mod:`~abele.codelet.cpp.native`: functions over tables of vertices.
- :mod:`~abele.codelet.cpp.costing`, ``taint``, ``counting``: issue slots.
- ``include``: our ``poplar/Vertex.hpp`` and companions.

Example: a file that instantiates a vertex template ``Saxpy`` for ``float`` and ``half`` gives 2 codelets,
``Saxpy<float>`` and ``Saxpy<half>``.
"""

from abele.codelet.cpp.loading import load_codelets

__all__ = ["load_codelets"]
