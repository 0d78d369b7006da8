"""Fuzz files for some time: ``python tests/fuzz --seconds 180 [--seed N] [--keep FOLDER]``.

Prints how many files came to which end; those that came to a bad one are kept as recipes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz.harness import is_good, server
from fuzz.models import drawn_model, save_models
from fuzz.programs import save_all
from fuzz.recipes import Recipe, drawn


def main() -> int:
    parser = argparse.ArgumentParser(description="Change executables and reports at random and open them.")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="where recipes of bad files go")
    parser.add_argument("--bases", type=Path, default=None, help="files to change, instead of those made now")
    parser.add_argument("--models", action="store_true", help="change ONNX models instead of executables and reports")
    parser.add_argument("--files", type=int, default=None, help="stop after so many files")
    parser.add_argument("--again", type=Path, nargs="*", help="recipes to try once")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory() as scratch:
        return fuzz(Path(scratch), arguments, random.Random(seed), seed)


def fuzz(scratch: Path, arguments: argparse.Namespace, rng: random.Random, seed: int) -> int:
    paths = {p.stem + ("-report" if p.suffix == ".report" else ""): p for p in (arguments.bases or scratch).iterdir()}
    if arguments.bases is None:
        paths = save_models(scratch) if arguments.models else save_all(scratch)
    bases = {name: path.read_bytes() for name, path in sorted(paths.items())}
    ends: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    with server(scratch) as opened:
        for name, content in bases.items():
            result = opened.tried(Recipe(name, ()), content, 60)
            assert result["outcome"] == "ok", (name, result)
        end, number = time.monotonic() + arguments.seconds, 0
        lines = [line for p in arguments.again or () for line in p.read_text(encoding="utf-8").splitlines()]
        recipes = [Recipe.of(line) for line in lines] or None
        most = arguments.files if recipes is None else len(recipes)
        draw = drawn_model if arguments.models else drawn
        while time.monotonic() < end and (most is None or number < most):
            recipe = recipes[number] if recipes is not None else draw(rng, bases)
            number += 1
            result = opened.tried(recipe, bases[recipe.base])
            ends[f"{result['phase']}: {result['outcome']}"] += 1
            if not is_good(result):
                last = [line for line in str(result["detail"]).splitlines() if line.strip()][-3:]
                cause = f"{result['phase']}: {result['outcome']} | {' / '.join(x.strip() for x in last)[-220:]}"
                bad[cause] += 1
                if bad[cause] <= 3:
                    print(f"{cause}\n    {recipe.text()[:300]}", flush=True)
                    _keep(recipe, arguments.keep)
    print(f"\nseed {seed}: {number:,} files")
    for name, count in ends.most_common():
        print(f"{count:8,}  {name}")
    print(f"{sum(bad.values()):8,}  bad, of {len(bad):,} kinds")
    return 1 if bad else 0


def _keep(recipe: Recipe, folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(exist_ok=True, parents=True)
        text = recipe.text()
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()[:10]}.json").write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
