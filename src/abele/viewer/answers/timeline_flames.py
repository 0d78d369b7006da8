"""A lane by the names around its steps, and by runs of blocks such as pipeline stages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.answers.timeline_asked import frozen_tiles, is_beyond_held, short_name, window_asked, words_of
from abele.viewer.bars import edges_of, seen
from abele.viewer.flames import blocks_of, flame_of, paths_of
from abele.viewer.lanes import GroupLanes, lanes_of
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

_MOST_BARS = 1_200
_FROZEN_FLAMES = 16


@question("timeline.depth", frozen=once, rank=4)
def depth_of_flames(opened: Opened, params: Params) -> Answer:
    """Number of rows of flames: head ``depth``."""
    return Answer({"depth": paths_of(opened).node.shape[1]})


def _frozen_flames(opened: Opened) -> Frozen:
    lanes = lanes_of(opened, 0)
    for lane in range(min(len(lanes), _FROZEN_FLAMES)):
        for level in range(3):
            for index in range(1 << level):
                yield {"program": "0", "lane": str(lane), "level": str(level), "index": str(index)}


@question("timeline.flame", frozen=_frozen_flames, rank=4)
def flame(opened: Opened, params: Params) -> Answer:
    """A lane by the names around its steps, in a map tile.

    Parameters: ``program``, ``lane``, ``level``, ``index``.

    Answer: arrays ``depth``, ``start``, ``cycles``, ``node`` (index into head ``names``), ``step`` (the first in it),
    ``part`` (what most of that step is), ``inner`` (1 where names follow below) and ``count`` (bars that each stands
    for; the longest of a column is shown); head ``beyond`` where there is too much to unfold.
    """
    program, held, level, index = window_asked(opened, params)
    lane = params.number("lane", high=len(held) - 1)
    edges = edges_of(index, level, 0.0, float(held.total))
    paths = paths_of(opened)
    columns: dict[str, list[Array]] = {
        name: [] for name in ("depth", "start", "cycles", "node", "step", "part", "inner", "count")
    }
    deeper = np.concatenate([paths.node[:, 1:] >= 0, np.zeros((len(paths.node), 1), dtype=bool)], axis=1)
    for depth, bars in enumerate(flame_of(opened, program, held, lane)):
        found = seen(bars, edges, _MOST_BARS)
        step = held.step[found.row]
        columns["depth"].append(np.full(len(step), depth, np.int32))
        columns["start"].append(found.begin)
        columns["cycles"].append(found.end - found.begin)
        columns["node"].append(paths.node[step, depth])
        columns["step"].append(step)
        columns["inner"].append(deeper[step, depth])
        columns["part"].append(_largest_part(opened, held)[step])
        columns["count"].append(found.count.astype(np.int32))
    arrays = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
    different, place = np.unique(arrays["node"].astype(np.int64), return_inverse=True)
    arrays["node"] = place.astype(np.int32)
    names = [short_name(paths.names[n]) for n in different.tolist()]
    return Answer({"names": names, "beyond": is_beyond_held(opened, held, float(edges[-1]))}, arrays)


def _largest_part(opened: Opened, held: GroupLanes) -> npt.NDArray[np.uint8]:
    """Largest part of each step, as an index into ``PARTS``, uint8[steps]."""

    def make() -> npt.NDArray[np.uint8]:
        steps = opened.report.steps
        columns = [steps[f"{name}_cycles"] for name in ("sync", "exchange", "host", "compute")]
        slot = np.stack(columns, axis=1).argmax(axis=1) if len(steps) else np.zeros(0, np.int64)
        return np.asarray(held.part[np.arange(len(steps)), slot], np.uint8)

    return opened.once("largest parts of steps", make)


@question("timeline.blocks", frozen=frozen_tiles, rank=3)
def blocks(opened: Opened, params: Params) -> Answer:
    """Runs of blocks, such as stages of a pipeline by micro-batch, on all lanes of a map tile.

    Parameters: ``program``, ``level``, ``index``.

    Answer: arrays ``lane``, ``start``, ``cycles``, ``number`` (which time it runs), ``name`` (index into head
    ``names``) and ``count`` (runs that each stands for).
    """
    program, held, level, index = window_asked(opened, params)
    edges = edges_of(index, level, 0.0, float(held.total))
    most = max(_MOST_BARS // max(len(held), 1), 16)
    columns: dict[str, list[Array]] = {name: [] for name in ("lane", "start", "cycles", "number", "name", "count")}
    names: dict[str, int] = {}
    for lane in np.flatnonzero(held.group >= 0).tolist():
        runs = blocks_of(opened, program, held, lane)
        places = type(runs.bars)(runs.bars.begin, runs.bars.end, np.arange(len(runs.bars)))
        found = seen(places, edges, most)
        called = words_of(opened.report, "block", runs.bars.row[found.row])
        words = [names.setdefault(short_name(word), len(names)) for word in called]
        columns["lane"].append(np.full(len(words), lane, np.int32))
        columns["start"].append(found.begin)
        columns["cycles"].append(found.end - found.begin)
        columns["number"].append(runs.number[found.row].astype(np.int32))
        columns["name"].append(np.array(words, np.int32))
        columns["count"].append(found.count.astype(np.int32))
    arrays = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
    return Answer({"names": list(names)}, arrays)
