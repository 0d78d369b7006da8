"""Host events in a window of time: figures by name, and the call tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.viewer.answers.host import MOST_LABELS, short_name
from abele.viewer.answers.registry import once, question
from abele.viewer.host_data import HostSource, host_data
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


@question("host.window", frozen=once, rank=4)
def figures(opened: Opened, params: Params) -> Answer:
    """Host events in a window of time: figures by name, and the call tree.

    Parameters: ``from`` and ``to`` in ns; all of it by default.

    Answer: head ``names`` with most time: ``name``, ``channel``, ``source``, ``count``, ``total``, ``self``, ``mean``,
    ``most`` (ns, of what lies in the window); ``tree``: ``name``, ``parent`` (place in the list, −1), ``count``,
    ``total``, ``self``.
    """
    data = host_data(opened)
    low = params.real("from")
    high = max(params.real("to", float(data.duration_ns)), low)
    names: list[dict[str, Any]] = []
    tree: list[dict[str, Any]] = []
    for number, source in enumerate(data.sources):
        held = source.columns
        inside = np.flatnonzero((held.events.begin_ns < high) & (held.events.end_ns > low))
        if not len(inside):
            continue
        cut = np.minimum(held.events.end_ns[inside], high) - np.maximum(held.events.begin_ns[inside], low)
        own = _self(held.events.parent, inside, cut, len(held.events))
        names += _by_name(source, number, inside, cut, own)
        tree += _tree(source, inside, cut, own, len(tree))
    names.sort(key=lambda entry: -entry["total"])
    return Answer({"low": low, "high": high, "names": names[:MOST_LABELS], "tree": tree})


def _self(parent: Int64, inside: Int64, cut: Array, count: int) -> Array:
    """Time in a window that no event inside takes, of some events."""
    inner = np.bincount(parent[inside] + 1, cut, count + 1)[1:]
    return np.asarray(np.maximum(cut - inner[inside], 0))


def _by_name(source: HostSource, number: int, inside: Int64, cut: Array, own: Array) -> list[dict[str, Any]]:
    held = source.columns
    label = held.events.label[inside]
    size = len(held.labels)
    count = np.bincount(label, minlength=size)
    total, alone = np.bincount(label, cut, size), np.bincount(label, own, size)
    most = np.zeros(size)
    np.maximum.at(most, label, cut)
    channel = np.zeros(size, np.int64)
    channel[label] = held.events.channel[inside]
    return [
        {
            "name": short_name(held.labels[n]),
            "channel": short_name(held.channels[channel[n]]),
            "source": number,
            "count": int(count[n]),
            "total": float(total[n]),
            "self": float(alone[n]),
            "mean": float(total[n] / count[n]),
            "most": float(most[n]),
        }
        for n in np.argsort(-total, kind="stable")[:MOST_LABELS].tolist()
        if count[n]
    ]


def _tree(source: HostSource, inside: Int64, cut: Array, own: Array, first: int) -> list[dict[str, Any]]:
    """Call paths with most time, each after the path around it."""
    node, parent, label = source.nodes
    size = len(parent)
    count = np.bincount(node[inside], minlength=size)
    total, alone = np.bincount(node[inside], cut, size), np.bincount(node[inside], own, size)
    kept = np.sort(np.argsort(-total, kind="stable")[:MOST_LABELS])
    kept = kept[count[kept] > 0]
    place = np.full(size + 1, -1)
    place[kept] = np.arange(len(kept)) + first
    return [
        {
            "name": short_name(source.columns.labels[label[n]]),
            "parent": int(place[parent[n]]) if parent[n] >= 0 else -1,
            "count": int(count[n]),
            "total": float(total[n]),
            "self": float(alone[n]),
        }
        for n in kept.tolist()
    ]
