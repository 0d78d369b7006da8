"""Saving and loading executables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from abele.compiler.compile import compile_program
from abele.compiler.executable import Executable
from abele.compiler.store.control_nodes import decoded_nodes
from abele.compiler.store.format import ExecutableDocument
from abele.compiler.store.graphs import GraphIn, GraphOut
from abele.compiler.store.programs import ProgramsIn, ProgramsOut
from abele.compiler.store.views import KIND, Writer
from abele.report import archive as container
from abele.report.contents import check_meta
from abele.report.file import told


def save_executable(executable: Executable, path: str | Path, *, full_paths: bool = False) -> None:
    """Write an executable to a file: the graph, its programs and its vertices' costs, as data.

    Args:
        executable: The executable.
        path: The file.
        full_paths: Keep the full paths of source files; otherwise they are told as ``portable_path`` gives them.

    Raises:
        FileFormatError: The file cannot be written, or a codelet is C++.
    """

    def fill(archive: container.ArchiveWriter) -> None:
        document = _document(executable, Writer(archive), full_paths)
        container.write_document(archive, KIND, document)

    container.write(Path(path), KIND, fill)


def _document(executable: Executable, writer: Writer, full_paths: bool) -> dict[str, Any]:
    graph = GraphOut(executable.graph, writer, told(full_paths))
    programs = ProgramsOut(graph)
    roots = programs.numbers(executable.programs)
    table = graph.table(programs.compute_sets)
    return {
        "graph": table,
        "nodes": programs.rows,
        "functions": programs.function_rows,
        "programs": dict(zip(executable.program_names, roots, strict=True)),
        "meta": {k: v for k, v in executable.meta.items() if isinstance(v, (str, int, float, bool, list))},
        "views": graph.views.rows,
    }


def load_executable(path: str | Path, *, trusted: bool = False) -> Executable:
    """The executable in a file, ready for an Engine.

    Nothing in the file is executed while it is loaded, and nothing is unpickled. Its codelets are data, from which
    native code is made here. Unless the file is trusted, that code checks every access: whatever a codelet indexes, it
    touches nothing outside its fields.

    Args:
        path: The file.
        trusted: Run its codelets at full speed, without checks. Only for files of your own.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no executable.
    """

    def build(archive: container.Archive, document: ExecutableDocument) -> Executable:
        check_meta(document.meta)
        made = GraphIn(document.graph, document.views, archive, trusted=trusted)
        with container.part("nodes"):
            nodes = decoded_nodes(document.nodes)
        programs = ProgramsIn(made, nodes, document.functions)
        named = {name: programs.node(number) for name, number in document.programs.items()}
        programs.extents.check(list(named.values()))
        return compile_program(made.graph, named, allow_out_of_memory=True, meta=document.meta)

    return container.read(Path(path), KIND, build)
