"""Memory by category: operations of a layer of BERT-Large beside those of a published profile.

The profile is of inference with one sequence of 128 tokens, f16, on one IPU of Mk2. It lists vertex state, exchange
code, control code and variables of each operation of the first layer; the later layers call code that was shared with
it. Vertex code is compared for the whole layer, since its operations share it. Our layer is that of the training runs,
its operations by name.

A vertex of a product walks lists of work. They are constants of its tile, so among the variables there, and part of
vertex state here. So state is compared together with them: what variables hold beside weights and the result. Of a
product by 1,024 or more columns the result is one of 128 x 1,024 (262,144 B), the same for 1,024, 3,072 and 4,096
columns: the published program multiplies by 1,024 at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abele.network import Network, NetworkBuilder, Schedule
from abele.numerics import f16
from abele.report import Report
from abele.session import Settings, compile_network
from abele.validation.figures import Bars, Comparison, Figure
from abele.validation.training.bert import LARGE
from abele.validation.training.transformer import ADDED, LayerBuilder, StagePlan

TOKENS = 128
SOURCE = "graphcore/popliner, profile of BERT-Large, SQuAD inference"
_PART = 2 * TOKENS * LARGE.hidden
"""Bytes of a product of 1,024 columns."""
_SCORES = 2 * LARGE.heads * TOKENS * TOKENS
"""Bytes of the scores of all heads."""


@dataclass(frozen=True)
class Published:
    """Published bytes of one operation over all tiles.

    Attributes:
        name: Its name in the profile, less that of the layer.
        path: Ours, less that of the layer.
        kind: Kind of our operation.
        state: Vertex state.
        exchange: Exchange code.
        control: Control code.
        constants: Constants of vertices: variables less weights, results and copies of operands.
    """

    name: str
    path: str
    kind: str
    state: int
    exchange: int
    control: int
    constants: int = 0


_WEIGHTS = 2 * LARGE.hidden
PUBLISHED = (
    Published(
        "QKV/MatMul",
        "attention/qkv",
        "poplin.matmul",
        86_272,
        520_300,
        104_228,
        constants=6_638_784 - 3072 * _WEIGHTS - _PART,
    ),
    Published(
        "Z/MatMul, scores",
        "attention/scores",
        "poplin.matmul_grouped",
        94_208,
        343_312,
        115_008,
        constants=605_312 - _SCORES,
    ),
    Published("Z/Mul", "attention/scores", "popops.map", 15_360, 0, 25_600),
    Published("Z/ApplyMask", f"attention/{ADDED}", "popops.map", 20_480, 28_096, 30_720),
    Published("Z/Softmax", "attention/scores", "popnn.softmax", 160_768, 102_048, 201_216),
    # Its variables have the scores once more, in the order in which the product reads them.
    Published(
        "Z/MatMul, context",
        "attention/context",
        "poplin.matmul_grouped",
        65_536,
        198_508,
        82_800,
        constants=858_240 - _SCORES - _PART,
    ),
    Published(
        "Attention/MatMul",
        "attention/out",
        "poplin.matmul",
        86_272,
        472_528,
        105_216,
        constants=2_444_480 - 1024 * _WEIGHTS - _PART,
    ),
    Published("GroupNormalization", "attention/norm", "", 221_120, 227_504, 261_016),
    Published(
        "FF/1/MatMul",
        "feed_forward/up",
        "poplin.matmul",
        86_272,
        443_848,
        103_636,
        constants=8_735_936 - 4096 * _WEIGHTS - _PART,
    ),
    Published("FF/1/Add", "feed_forward/up", "popops.map", 25_088, 39_380, 35_840),
)
"""The first layer, without residual sums, whose operands lie by what is around them, and what is not in ours."""


LAYER_CODE_BYTES = 7_876_760
"""Vertex code of a layer over all tiles, what its operations share once; the same for most of the 24."""


def layer() -> Network:
    """A layer of BERT-Large with a mask of one row, for padding, that is added in a pass of its own."""
    net = NetworkBuilder()
    rows = net.input((TOKENS, LARGE.hidden), f16, "rows")
    mask = net.input((1, 1, 1, TOKENS), f16, "mask")
    builder = LayerBuilder(
        net, LARGE, StagePlan.of_layers((1,)), 1, TOKENS, checkpoints=False, norms_first=False, masks_apart=True
    )
    net.output(builder.layers(rows, lambda stage: mask))
    return net.finish()


def bytes_of(report: Report, row: Published) -> dict[str, int]:
    """Bytes of our operations that are one of the published, by category."""
    ops = report.ops
    mine = np.array(
        [
            str(path) == f"layer0/{row.path}" and row.kind in ("", str(kind))
            for path, kind in zip(ops["path"], ops["kind"], strict=True)
        ]
    )
    assert mine.any(), row.name
    names = {"vertex state": "vertex_state", "exchange code": "exchange_code", "control code": "control_code"}
    return {category: int(ops[f"{column}_bytes"][mine].sum()) for category, column in names.items()}


def figures(report: Report) -> Iterator[Figure]:
    """Our bytes beside the published ones, for every operation and category that has any."""
    for row in PUBLISHED:
        ours = bytes_of(report, row)
        theirs = {
            "vertex state": row.state + row.constants,
            "exchange code": row.exchange,
            "control code": row.control,
        }
        for category, published in theirs.items():
            if published:
                yield Figure(f"{row.name}: {category}", category, ours[category], published, "B", SOURCE)
    code = report.memory.totals()["vertex_code"]
    yield Figure("a layer: vertex code", "vertex code", code, LAYER_CODE_BYTES, "B", SOURCE)


BARS = Bars(1.0, 0.25)
"""Largest errors of vertex state and of control code; exchange code follows from layouts that are not known."""


def compare() -> tuple[Comparison, ...]:
    """Compile the layer for a GC200, and compare its operations, category by category."""
    settings = Settings(system="gc200", allow_out_of_memory=True)
    report = compile_network(layer(), Schedule(), settings=settings).executable.report
    found = tuple(figures(report))
    return tuple(
        Comparison(
            category.replace(" ", "_"),
            f"operators: {category}",
            f"{_ABOUT} {more}".strip(),
            tuple(f for f in found if f.kind == category),
            None if category == "exchange code" else BARS,
        )
        for category, more in _MORE.items()
    )


_ABOUT = (
    "Operations of a layer of BERT-Large, inference with 128 tokens, on one IPU of Mk2, beside a published profile."
)
_MORE = {
    "vertex state": (
        "Constants of vertices count as state: the published program has lists of work among its variables. It "
        "multiplies by 1,024 columns at a time, which takes a shorter list of pointers than 4,096 at once."
    ),
    "exchange code": (
        "A piece is one instruction here, after those of the first. Published products have more: how their operands "
        "lay is not known, and a receiver may issue up to three instructions for a piece (machine.md §2.2)."
    ),
    "control code": "",
    "vertex code": (
        "Least sizes of products, sums, conversions and element-wise vertices come from single operations of this "
        "profile. Other sizes, and how many vertices a layer has, do not."
    ),
}
