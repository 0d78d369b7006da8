"""Orders of arguments in PopLibs' popsparse headers that are not our own."""

from __future__ import annotations

from abele.poplibs.poputil.arguments import Forms

FORMS: Forms = {
    "create_indices_tensor": ("params options num_indices",),
    "sparse_dense_matmul": ("lhs rhs prog transpose_lhs? transpose_rhs?",),
}
