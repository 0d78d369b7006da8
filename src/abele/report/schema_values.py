"""Tables of the values of tensors: histograms of exponents, record by record."""

from __future__ import annotations

from abele.report.column_spec import ColumnSpec, Schema, count_column, owner_column, text_column

ROLES = ("weight", "gradient", "activation", "activation gradient", "input", "other")
"""Roles of a tensor whose exponents are counted."""

EXPONENT_RECORDS = Schema(
    "exponent_records",
    {
        "step": count_column("weight updates (or inference batches) after which it was counted", since=8),
        "tensor": text_column("name of the tensor", since=8),
        "role": text_column("one of ROLES: what it is", since=8, choices=ROLES),
        "type": text_column("element type", since=8),
        "elements": count_column("elements, of all replicas", since=8),
        "zeros": count_column("of these zero", since=8),
        "infinities": count_column("infinite", since=8),
        "nans": count_column("no numbers", since=8),
        "above_half": count_column("finite, and larger than the largest f16, 65504", since=8),
        "largest": ColumnSpec("<f8", "largest finite magnitude", 0.0, since=8),
    },
    since=8,
)
"""Tensors whose exponents were counted, step by step."""

EXPONENT_COUNTS = Schema(
    "exponent_counts",
    {
        "record": owner_column("row in the exponent_records table", "exponent_records", since=8),
        "octave": ColumnSpec("<i4", "e: magnitudes from 2**e to below 2**(e + 1)", since=8, low=-127),
        "count": count_column("elements there", since=8),
    },
    since=8,
)
"""Elements of each record by exponent; octaves without elements are left out."""
