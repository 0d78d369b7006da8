"""Tables of sparse operands: what tiles hold of them, and what their patterns cost."""

from __future__ import annotations

from abele.report.column_spec import ColumnSpec, Schema, count_column, owner_column, text_column

SPARSE_LIBRARIES = ("static", "dynamic", "experimental")
"""Libraries of a sparse operand: its pattern is in the program, comes with the data, or is a mask of blocks."""

_TILES = {
    "first_tile": ColumnSpec("<i4", "first of some neighbouring tiles that are alike", refers="tiles"),
    "num_tiles": ColumnSpec("<i4", "how many tiles these are", 1, low=1),
}

SPARSE_OPERANDS = Schema(
    "sparse_operands",
    {
        "name": text_column("name of its values with scopes", since=12),
        "library": text_column(
            "one of SPARSE_LIBRARIES: the part of popsparse that multiplies it", since=12, choices=SPARSE_LIBRARIES
        ),
        "type": text_column("element type", since=12),
        "groups": count_column("matrices of its shape", 1, since=12, low=1),
        "rows": count_column("rows of one, in elements", since=12),
        "columns": count_column("columns of one, in elements", since=12),
        "block_rows": count_column("rows of a block, in elements", 1, since=12, low=1),
        "block_columns": count_column("columns of a block, in elements", 1, since=12, low=1),
        "blocks": count_column("blocks that it holds, of all groups; blocks declared, where assumed", since=12),
        "density": ColumnSpec("<f8", "share of the elements that it holds", 0.0, since=12),
        "basis": text_column(
            "static, or counted in the buckets when the report was made, or assumed: an even deal of what was declared",
            since=12,
            choices=("static", "assumed", "counted"),
        ),
        "capacity": count_column(
            "values that the bucket of a tile has room for; 0 where tiles hold what there is", since=12
        ),
        "tiles": count_column("tiles that work on it, or have a bucket", since=12),
        "mean_values": ColumnSpec("<f8", "values of the mean one of these tiles", 0.0, since=12),
        "most_values": count_column("values of the fullest tile", since=12),
        "imbalance": ColumnSpec("<f8", "values of the fullest tile / those of the mean one", 1.0, since=12),
        "passes": count_column("passes of buckets round the tiles that its pattern takes, beyond the first", since=12),
        "worst_passes": count_column("the same of the worst pattern that there is room for", since=12),
    },
    since=12,
)
"""Sparse matrices that library calls multiply."""

SPARSE_TILES = Schema(
    "sparse_tiles",
    {
        "operand": owner_column("row in the sparse_operands table", "sparse_operands", since=12),
        **_TILES,
        "values": count_column("values of it that each of these tiles works on, or has in its bucket", since=12),
    },
    since=12,
)
"""Values of each sparse operand by tile, in order of operands and tiles."""

SPARSE_PASSES = Schema(
    "sparse_passes",
    {
        "name": text_column("name of the product with scopes", since=12),
        "program": ColumnSpec("<i4", "index of the program", since=12),
        "products": count_column("times that it was made in the run", since=12),
        "passes": count_column("passes beyond the first that these took", since=12),
        "worst_passes": count_column("passes that they would have taken with the worst pattern", since=12),
        "cycles": count_column("cycles of the passes", since=12),
        "worst_cycles": count_column("cycles of those of the worst pattern", since=12),
    },
    since=12,
)
"""Passes of dynamic products in the last whole run of each program: what their patterns cost, against the worst."""
