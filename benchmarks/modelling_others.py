"""CPU-seconds that SCALE-Sim and ZigZag take for square matrix products; run in the environment that has them.

    python modelling_others.py SCALESIM_OR_ZIGZAG SIZE...

One JSON object a line: ``size`` and ``cpu_seconds``, imports left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CONFIG = """[general]
run_name = gemm
[architecture_presets]
ArrayHeight = 32
ArrayWidth = 32
IfmapSramSzkB = 64
FilterSramSzkB = 64
OfmapSramSzkB = 64
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = ws
Bandwidth = 10
ReadRequestBuffer = 64
WriteRequestBuffer = 64
[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


def scalesim(size: int, folder: Path) -> Callable[[], None]:
    """A run of SCALE-Sim, weight stationary on its own default array of 32 by 32, without traces."""
    from scalesim.scale_sim import scalesim as simulator

    (folder / "gemm.cfg").write_text(CONFIG)
    (folder / "gemm.csv").write_text(f"Layer, M, N, K,\ngemm, {size}, {size}, {size},\n")
    (folder / "layout.csv").write_text("Layer,\n")
    made = simulator(True, False, str(folder / "gemm.cfg"), str(folder / "gemm.csv"), str(folder / "layout.csv"), True)
    return lambda: made.run_scale(top_path=str(folder))


def zigzag(size: int, folder: Path) -> Callable[[], None]:
    """A search by ZigZag for the best mapping on the TPU-like chip that it comes with."""
    import zigzag as package
    from zigzag.api import get_hardware_performance_zigzag

    inputs = Path(package.__file__).parent / "inputs"
    layer = {
        "id": 0,
        "name": "gemm",
        "operator_type": "Gemm",
        "equation": "O[b][k]+=I[b][c]*W[c][k]",
        "loop_dims": ["B", "K", "C"],
        "loop_sizes": [size] * 3,
        "operand_precision": {"I": 16, "W": 16, "O": 16, "O_final": 16},
        "operand_source": {"I": 0, "W": 0},
    }

    def run() -> None:
        get_hardware_performance_zigzag(
            [layer],
            str(inputs / "hardware/tpu_like.yaml"),
            str(inputs / "mapping/tpu_like.yaml"),
            dump_folder=str(folder),
            loma_show_progress_bar=False,
        )

    return run


def main() -> None:
    """Measure one tool for the sizes given."""
    tool = {"scalesim": scalesim, "zigzag": zigzag}[sys.argv[1]]
    for size in map(int, sys.argv[2:]):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            run = tool(size, Path(folder))
            start = time.process_time()
            run()
            seconds = time.process_time() - start
        print(json.dumps({"size": size, "cpu_seconds": round(seconds, 3)}), flush=True)


if __name__ == "__main__":
    main()
