"""Rows of packed data made by gathers, beside a collator that goes through samples one by one.

    python benchmarks/packed_data.py --samples 1000000

Both make the same arrays (ids, labels, positions, sequence ids) of the same packs, in portions in turn; ours makes
weights of losses and lengths too. Times are of this process alone, so that other work on the machine counts less, and
NumPy's gathers use one thread. With `--trl`, TRL's packer is timed too, where it is installed: it packs and makes its
arrays, so packing counts on both sides.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from abele.packing.data import PackedRows, Ragged, RowShape, pack_rows
from abele.packing.tasks import language_model


def documents(count: int, seed: int = 0) -> Ragged:
    """Token ids of documents between 8 and 512 tokens, short ones more often."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(8 + rng.geometric(1 / 150, count), 512)
    return Ragged.of_lengths(rng.integers(1, 30_000, int(lengths.sum()), dtype=np.int32), lengths)


def collated(rows: PackedRows, numbers: Any) -> dict[str, np.ndarray]:
    """Packs by a collator in plain Python: lists that are extended sample by sample, then arrays."""
    ids, labels = rows.samples.columns["input_ids"], rows.samples.columns["labels"]
    capacity = rows.shape.capacity_of("tokens")
    made: dict[str, list[list[int]]] = {"input_ids": [], "labels": [], "position_ids": [], "sequence_ids": []}
    for number in numbers:
        row: dict[str, list[int]] = {name: [] for name in made}
        for slot, sample in enumerate(rows.packs[number]):
            tokens = ids[sample].tolist()
            row["input_ids"] += tokens
            row["labels"] += labels[sample].tolist()
            row["position_ids"] += range(len(tokens))
            row["sequence_ids"] += [slot + 1] * len(tokens)
        rest = capacity - len(row["input_ids"])
        for name, values in row.items():
            made[name].append(values + [-100 if name == "labels" else 0] * rest)
    return {name: np.array(values, np.int32) for name, values in made.items()}


def compared(rows: PackedRows, portion: int, rounds: int) -> tuple[float, float]:
    """Tokens per second of gathers and of the collator, on the same portions of rows in turn; medians."""
    rng = np.random.default_rng(1)
    rates: dict[str, list[float]] = {"gathers": [], "collator": []}
    for _ in range(rounds):
        numbers = rng.permutation(len(rows))[:portion]
        results = {}
        for name, make in (("gathers", rows.take), ("collator", lambda n: collated(rows, n))):
            start = time.process_time()
            results[name] = make(numbers)
            tokens = int((results[name]["sequence_ids"] > 0).sum())
            rates[name].append(tokens / (time.process_time() - start))
        for name, array in results["collator"].items():
            assert np.array_equal(array, results["gathers"][name]), name
    return float(np.median(rates["gathers"])), float(np.median(rates["collator"]))


def trl_rate(ids: Ragged) -> float:
    """Tokens per second of TRL's best-fit packer on a data set of token ids."""
    import datasets
    from trl import pack_dataset

    data = datasets.Dataset.from_dict({"input_ids": [part.tolist() for part in ids]})
    start = time.process_time()
    pack_dataset(data, 512, "bfd").with_format("numpy")[:]
    return len(ids.own_values) / (time.process_time() - start)


def main() -> None:
    """Print rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--portion", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trl", type=int, default=0, help="documents to give to TRL's packer")
    given = parser.parse_args()
    ids = documents(given.samples)
    samples = language_model(ids)
    start = time.process_time()
    rows = pack_rows(samples, RowShape(512, depth=8))
    packing = time.process_time() - start
    tokens = len(ids.own_values)
    print(f"{len(samples):,} samples, {tokens:,} tokens in {len(rows):,} rows; packed and checked in {packing:.2f} s")
    gathers, collator = compared(rows, given.portion, given.rounds)
    print(
        f"gathers {gathers / 1e6:.1f} M tokens/s, plain collator {collator / 1e6:.2f}: {gathers / collator:.1f} times"
    )
    start, seen = time.process_time(), 0
    for begin in range(0, len(rows), given.portion):
        seen += int((rows[begin : begin + given.portion]["sequence_ids"] > 0).sum())
    seconds = time.process_time() - start
    assert seen == tokens
    rate, each = tokens / seconds / 1e6, len(samples) / seconds
    print(f"all rows once: {seconds:.1f} s, {rate:.1f} M tokens/s, {each:,.0f} samples/s")
    if given.trl:
        part = documents(given.trl)
        start = time.process_time()
        pack_rows(language_model(part), RowShape(512, depth=512))[:]
        own = len(part.own_values) / (time.process_time() - start)
        other = trl_rate(part)
        print(f"{given.trl:,} samples packed and made: {own / 1e6:.1f} M tokens/s, TRL {other / 1e6:.2f}")


if __name__ == "__main__":
    main()
