"""``replication_ops``: the number of a replica."""

from __future__ import annotations

from typing import Any

from abele.frontends.keras.ipu.ops.primitives import RANK, replicas


def replication_index(name: str | None = None) -> Any:
    """Number of the replica that this runs on: i32[]."""
    return RANK.bind(size=replicas())
