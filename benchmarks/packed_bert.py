"""BERT trained on packs and on padded sequences, in turns: loss by sequence, wall-clock and processor time.

Both trainings see the same sequences, with Wikipedia's lengths up to 512, once each; they take turns update by update,
so that other work on the machine slows both down alike. Packs are drawn from the plan of the whole histogram. Noise is
measured with several seeds, each with other weights, text, masks and order. With --json one object is printed:
``settings``, ``factor``, ``runs`` (one per seed: curves, held-out losses, seconds) and ``summary``.

Both are the same program, whose mask is of equal sequence ids, and leave out hidden keys. ``--padding-mask`` adds
padded training whose mask is of padding alone, so that less is left to compute; ``--whole`` adds packed and padded
training that compute all scores, as published figures do.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from packed_attention import whole_scores
from rich.console import Console

from abele import poptorch
from abele.garden.packed_bert import LONGEST, SHORTEST, PretrainingData, drawn_packs, histogram, one_each, train
from abele.garden.packed_training import OPTIMIZERS, BertSizes, BertTraining, held_out_losses
from abele.packing import PackingPlan, SizeHistogram, pack
from abele.packing.data.packed_rows import PackedRows

PARTS = 12
"""Points of a curve."""
EVALUATED = 8
"""Rows of a batch of held-out sequences."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=Path, help="CSV with columns length and wikipedia_512; else a description")
    parser.add_argument("--method", default="nnlshp", help="how packs are found: nnlshp as published, columns, …")
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--packs", type=int, default=512)
    parser.add_argument("--held-out", type=int, default=128, help="sequences of files that training never sees")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="of a row; lengths become as much shorter")
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=1, help="of a micro-batch")
    parser.add_argument("--accumulation", type=int, default=4, help="micro-batches of an update of padded sequences")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", type=int, help="read the longest so many files alone, which is sooner done")
    parser.add_argument("--padding-mask", action="store_true", help="also padded, with a mask of padding alone")
    parser.add_argument("--whole", action="store_true", help="also both with all scores computed")
    parser.add_argument("--quick", action="store_true", help="one layer of width 64, 16 packs: does it work?")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.width, given.layers, given.tokens, given.packs, given.held_out = 64, 1, 128, 16, 16
    sizes = BertSizes(
        vocabulary=given.vocabulary,
        width=given.width,
        layers=given.layers,
        heads=given.heads,
        tokens=given.tokens,
        rows=given.rows,
        accumulation=given.accumulation,
        learning_rate=given.learning_rate,
        optimizer=given.optimizer,
    )
    plan = plan_of(given.lengths, given.tokens, given.depth, given.method)
    runs = [run(sizes, plan, seed, given) for seed in given.seeds]
    result = {"settings": asdict(sizes), "factor": plan.factor, "runs": runs, "summary": summary(runs)}
    print(json.dumps(result) if given.json else summary_text(plan, runs))


@dataclass(frozen=True)
class Contestant:
    """One way to train.

    Attributes:
        is_packed: True for rows of packs, False for rows of one sequence.
        sees_ids: True if the mask is of equal sequence ids, False if of padding alone.
        is_whole: True if scores that masks hide are computed, too.
    """

    is_packed: bool
    sees_ids: bool = True
    is_whole: bool = False


def contestants(given: argparse.Namespace) -> dict[str, Contestant]:
    """Those that were asked for, by name."""
    made = {"padded": Contestant(is_packed=False), "packed": Contestant(is_packed=True)}
    if given.padding_mask:
        made["padded, mask of padding"] = Contestant(is_packed=False, sees_ids=False)
    if given.whole:
        made["padded, whole"] = Contestant(is_packed=False, sees_ids=False, is_whole=True)
        made["packed, whole"] = Contestant(is_packed=True, is_whole=True)
    return made


PAIRS = (("padded", "packed"), ("padded, mask of padding", "packed"), ("padded, whole", "packed, whole"))
"""Pairs of trainings to compare."""


def plan_of(path: Path | None, tokens: int, depth: int, method: str) -> PackingPlan:
    """A plan of Wikipedia's lengths, made as much shorter as rows are."""
    if path is None:
        counts = np.concatenate([[0], histogram(1_000_000)])
    else:
        with path.open(newline="") as file:
            counts = np.array([0, *(int(row["wikipedia_512"] or 0) for row in csv.DictReader(file))])
    lengths = np.maximum(SHORTEST, -(-np.arange(LONGEST + 1) * tokens // LONGEST))
    shorter = np.bincount(lengths, counts).astype(np.int64)
    return pack(SizeHistogram.counted(shorter), tokens, depth=depth, method=method)  # type: ignore[arg-type]


def run(sizes: BertSizes, plan: PackingPlan, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """All trainings of one seed."""
    lengths, packs = drawn_packs(plan, given.packs, seed)
    test_lengths = drawn_packs(plan, given.held_out, seed + 1000)[0][: given.held_out]
    data = PretrainingData.of((lengths, test_lengths), sizes.vocabulary, seed, given.files)
    alone = one_each(len(lengths))

    def options() -> poptorch.Options:
        opts = poptorch.Options().randomSeed(seed)
        opts.Abele.threads(given.threads)
        opts.Abele.allowOutOfMemory()  # the host is measured, whether or not the modelled chip has room
        return opts

    trainings: dict[str, BertTraining] = {}
    for name, way in contestants(given).items():
        rows, depth = (packs, given.depth) if way.is_packed else (alone, 1)
        with whole_scores() if way.is_whole else nullcontext():
            trainings[name] = BertTraining(
                sizes, data.train, rows, options(), depth=depth, seed=seed, packed=way.sees_ids
            )
            trainings[name].compile()
    train(list(trainings.values()), Console(stderr=True))
    test = PackedRows(data.test, one_each(len(test_lengths)), sizes.row_shape(1))
    found: dict[str, Any] = {"seed": seed, "factor": len(lengths) / len(packs)}
    for name, training in trainings.items():
        curve = training.curve
        training.executor.detachFromDevice()
        words, order = held_out_losses(training.model, test, options(), EVALUATED)
        found[name] = {
            "updates": training.updates,
            "accumulation": training.settings.accumulation,
            "betas": training.settings.betas,
            "sequences": sum(curve.sequences),
            "seconds": sum(curve.seconds),
            "seconds_per_sequence": curve.per_sequence(),
            "cpu_seconds_per_sequence": curve.per_sequence(cpu=True),
            "curve": curve.means(PARTS).tolist(),
            "held_out_words": words,
            "held_out_order": order,
        }
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Speed-ups and differences of losses over all seeds; noise is the spread over seeds."""
    held_out = [[run[name]["held_out_words"] for name in ("padded", "packed")] for run in runs]
    last = [[run[name]["curve"][-1] for name in ("padded", "packed")] for run in runs]
    return {
        "speed_ups": [
            {
                "padded": padded,
                "packed": packed,
                "wall": speed_up(runs, "seconds_per_sequence", padded, packed),
                "cpu": speed_up(runs, "cpu_seconds_per_sequence", padded, packed),
            }
            for padded, packed in PAIRS
            if padded in runs[0]
        ],
        "factor": statistics.mean(run["factor"] for run in runs),
        "held_out": compared(held_out),
        "last_part": compared(last),
    }


def speed_up(runs: list[dict[str, Any]], key: str, padded: str, packed: str) -> float:
    """Time of padded sequences over that of packed ones, summed over runs."""
    return float(sum(run[padded][key] for run in runs) / sum(run[packed][key] for run in runs))


def compared(pairs: list[list[float]]) -> dict[str, float | None]:
    """Means of both, the mean difference, its standard error, and how losses of padded runs spread over seeds."""
    differences = [packed - padded for padded, packed in pairs]
    padded = [first for first, _ in pairs]
    several = len(pairs) > 1
    return {
        "padded": statistics.mean(padded),
        "packed": statistics.mean(second for _, second in pairs),
        "difference": statistics.mean(differences),
        "standard_error": statistics.stdev(differences) / len(pairs) ** 0.5 if several else None,
        "spread_over_seeds": statistics.stdev(padded) if several else None,
    }


def summary_text(plan: PackingPlan, runs: list[dict[str, Any]]) -> str:
    """The summary for people."""
    found = summary(runs)
    lines = [
        f"plan: {plan.num_packs:,} packs by {plan.method}, factor {plan.factor:.3f}; drawn packs {found['factor']:.3f}",
    ]
    for pair in found["speed_ups"]:
        lines.append(
            f"{pair['packed']} against {pair['padded']}: {pair['wall']:.3f} times as fast by wall clock, "
            f"{pair['cpu']:.3f} by processor time"
        )
    for name in ("held_out", "last_part"):
        c = found[name]
        text = f"{name}: padded {c['padded']:.4f}, packed {c['packed']:.4f}, difference {c['difference']:+.4f}"
        if c["standard_error"] is not None:
            text += f" ± {c['standard_error']:.4f} (standard error), seeds spread by {c['spread_over_seeds']:.4f}"
        lines.append(text)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
