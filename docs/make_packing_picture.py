"""Draw the picture of the page on packing: python docs/make_packing_picture.py LENGTH_HISTOGRAMS.csv."""

from __future__ import annotations

import argparse
from pathlib import Path

from abele.cli.pack import by_depth
from abele.cli.pack_picture import draw
from abele.machine import systems
from abele.packing import pack, read_lengths

PICTURE = Path(__file__).parent / "pictures" / "packing-squad.png"


def main() -> None:
    """Pack SQuAD's lengths at depth 3 and draw them as ``abele pack --picture`` does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("histograms", type=Path, help="a table of lengths with a column squad11_384")
    given = parser.parse_args()
    plan = pack(read_lengths(given.histograms, column="squad11_384"), 384, depth=3)
    draw(plan, [(row.name, row.plan) for row in by_depth(plan, systems.get("bow-2000"), None)], PICTURE)
    print(f"written: {PICTURE.name}")


if __name__ == "__main__":
    main()
