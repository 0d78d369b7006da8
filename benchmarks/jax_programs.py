"""Programs of JAX under ``abele.jax.jit`` beside ``jax.jit`` on the CPU, side by side on two threads.

    python benchmarks/jax_programs.py [--json] [--only PART_OF_NAME] [--scale 4] [--seconds 1.0] [--first]

The programs are those of ``tests/frontends/jax/programs``, larger by a factor each. Each is called again and again with
its state donated, which so stays on the device; both take turns, and the median of the turns counts. The last result
of a turn is waited for and brought to the host. With ``--first`` the first call is measured instead, in processes
of their own and without what is kept on disk: tracing and compiling, of the Flax transformer and CNN. The bars are a
geometric mean of 1.3 and none under 0.9 for steps, and at most twice JAX's time for first calls; the exit code is 1
where one is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
FOLDER = TESTS / "frontends" / "jax" / "programs"
BAR_MEAN, BAR_EACH, BAR_FIRST = 1.3, 0.9, 2.0
TURNS = 5
SCALES = {
    "cell_list": 32,
    "decoding": 16,
    "diffusion": 32,
    "equinox_mlp": 32,
    "flax_cnn": 4,
    "flax_transformer": 4,
    "flow": 64,
    "gaussian_process": 16,
    "gnn": 32,
    "haiku_lstm": 8,
    "hmc": 1024,
    "ising": 64,
    "kalman": 256,
    "kmeans": 512,
    "lennard_jones": 3,
    "neural_ode": 32,
    "pinn": 16,
    "ppo": 32,
    "slide_transformer": 8,
    "springs": 8,
    "state_space": 16,
    "vae": 32,
}
"""Factor of each program's sizes, at which a step takes XLA a millisecond or more; 4 for others."""
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "program")
FIRST = ("flax_transformer", "flax_cnn")


def load(name: str, scale: int) -> Any:
    """A program of the table."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module(f"frontends.jax.programs.{name}").program(scale)


def jitted(way: str, step: Any) -> Any:
    """A step, compiled by one of the two."""
    import jax

    from abele import jax as abele_jax

    return (abele_jax.jit if way == "abele" else jax.jit)(step, donate_argnums=0)


def first_call(way: str, name: str, scale: int) -> float:
    """Seconds from the function to its first result; meant for a process of its own."""
    import jax

    program = load(name, scale)
    step = jitted(way, program.step)
    jax.block_until_ready(jax.tree.leaves(program.state))
    start = time.perf_counter()
    _, result = step(program.state, *program.batches[0])
    waited_for(result)
    return time.perf_counter() - start


def waited_for(result: Any) -> None:
    """Bring a result to the host."""
    import jax
    import numpy as np

    for leaf in jax.tree.leaves(result):
        np.asarray(leaf)


def turn(step: Any, state: Any, batch: Any, calls: int) -> tuple[float, Any]:
    """Seconds per call, and the state after so many calls."""
    start, result = time.perf_counter(), None
    for _ in range(calls):
        state, result = step(state, *batch)
    waited_for(result)
    return (time.perf_counter() - start) / calls, state


def step_row(name: str, scale: int, seconds: float) -> dict[str, Any]:
    """Both ways' time per call of one program."""
    import jax

    program = load(name, scale)
    batch = jax.device_put(program.batches[0])
    ways = {way: jitted(way, program.step) for way in ("abele", "jax")}
    states = {way: jax.tree.map(lambda a: a.copy(), program.state) for way in ways}
    calls = {}
    for way, step in ways.items():
        _, states[way] = turn(step, states[way], batch, 1)
        taken, states[way] = turn(step, states[way], batch, 3)
        calls[way] = max(3, int(seconds / TURNS / taken))
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, step in ways.items():
            taken, states[way] = turn(step, states[way], batch, calls[way])
            times[way].append(taken)
    ways["abele"].clear_cache()
    return {"program": name, **{way: statistics.median(t) for way, t in times.items()}}


def _alone(way: str, name: str, scale: int) -> float:
    """A first call in a process of its own. What is measured once on a host is there, compiled code is not."""
    with tempfile.TemporaryDirectory() as folder:
        known = Path(os.environ.get("ABELE_CACHE_DIR", Path.home() / ".cache" / "abele")) / "host"
        if known.is_dir():
            shutil.copytree(known, Path(folder) / "host")
        command = [sys.executable, __file__, "--one", way, name, "--scale", str(scale)]
        env = os.environ | {"ABELE_CACHE_DIR": folder}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def first_row(name: str, scale: int) -> dict[str, Any]:
    """Both ways' time of a first call, each in processes of its own."""
    row: dict[str, Any] = {"program": name}
    for way in ("abele", "jax"):
        taken = []
        for _ in range(3):
            taken.append(_alone(way, name, scale))
        row[way] = statistics.median(taken)
    return row


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", metavar="PART_OF_NAME", help="only programs whose name has this part")
    parser.add_argument("--scale", type=int, default=0, help="factor of the programs' sizes, instead of their own")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each way of a program")
    parser.add_argument("--first", action="store_true", help="measure first calls")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(first_call(given.one[0], given.one[1], given.scale))
        return 0
    scale = {p: given.scale or SCALES.get(p, 4) for p in NAMES}
    names = [name for name in NAMES if given.only in name]
    if given.first:
        rows = [first_row(name, scale[name]) for name in FIRST if name in names]
    else:
        rows = [step_row(name, scale[name], given.seconds) for name in names]
    gains = [row["jax"] / row["abele"] for row in rows]
    mean = statistics.geometric_mean(gains)
    if given.json:
        print(json.dumps({"rows": rows, "mean": mean}))
    else:
        for row, gain in zip(rows, gains, strict=True):
            print(
                f"{row['program']:20} abele {row['abele'] * 1e3:9.3f} ms   jax {row['jax'] * 1e3:9.3f} ms   {gain:5.2f}"
            )
        print(f"{'geometric mean':20} {mean:51.2f}")
    if given.first:
        return int(any(1 / gain > BAR_FIRST for gain in gains))
    return int(mean < BAR_MEAN or min(gains) < BAR_EACH)


if __name__ == "__main__":
    sys.exit(main())
