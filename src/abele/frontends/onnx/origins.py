"""Names and source lines of nodes, for reports and errors.

PyTorch's exporter keeps in each node's metadata the lines of the user's program that made it, and the modules that they
are in; others give a node a name, or none.
"""

from __future__ import annotations

import ast
import re

import onnx

from abele.graph.debug import DebugRecord

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SCOPES = "pkg.torch.onnx.name_scopes"
_TRACE = "pkg.torch.onnx.stack_trace"


def origin_of(node: onnx.NodeProto, around: DebugRecord) -> DebugRecord:
    """Name, path and place of a node.

    The path has the modules that the node is in, or its own name: ``/encoder/layer.0/MatMul`` is ``matmul`` in
    ``encoder/layer/0``, and ``Conv_12`` is ``conv`` in ``Conv_12``.

    Args:
        node: The node.
        around: Those of what it is inside of.
    """
    metadata = {entry.key: entry.value for entry in getattr(node, "metadata_props", ())}
    frames = list(_FRAME.finditer(metadata.get(_TRACE, "")))
    frame = frames[-1] if frames else None
    scope = _scope(metadata.get(_SCOPES, "")) or (_path(node.name) if node.name.startswith("/") else "")
    text, path = (scope, scope.replace(".", "/")) if scope else (node.name or around.text, node.name or around.path)
    file, line = (around.file, around.line) if frame is None else (frame["file"], int(frame["line"]))
    return DebugRecord(node.op_type.lower(), path, file, line, text)


def _scope(written: str) -> str:
    """The innermost module of a list of scopes, the last of which is the operation itself."""
    if not written:
        return ""
    try:
        scopes = [str(s) for s in ast.literal_eval(written)]
    except (SyntaxError, ValueError):
        return ""
    return scopes[-2] if len(scopes) > 1 else ""


def _path(name: str) -> str:
    """Modules in the name of a node, as ``/encoder/layer.0/MatMul`` has them."""
    return ".".join(name.strip("/").split("/")[:-1])
