"""Holds PyTorch and Numba to the CPU that ``ABELE_CPU`` names: both sides of a comparison run code for the same one."""

import os
import tempfile
from pathlib import Path

from abele.llvm.host import VARIABLE, host_cpu


def cpu_of_both() -> str:
    """The CPU of both sides' code, in words for the title of a table."""
    held = "others held to AVX2" if "avx512f" not in host_cpu().features else "others at will"
    return f"code for {host_cpu().name}, {held}"


def hold_numba() -> None:
    """Make Numba's code for the CPU of ours; to be called before Numba is imported."""
    if os.environ.get(VARIABLE):
        os.environ.setdefault("NUMBA_CPU_NAME", host_cpu().name)
        os.environ.setdefault("NUMBA_CPU_FEATURES", host_cpu().feature_string)


def hold_pytorch() -> None:
    """Keep ATen, oneDNN and MKL to AVX2 where code of ours has no more; to be called before PyTorch's first operation.

    Values that the user has set are kept.
    """
    if os.environ.get(VARIABLE) and "avx512f" not in host_cpu().features:
        for name, value in (
            ("ATEN_CPU_CAPABILITY", "avx2"),
            ("ONEDNN_MAX_CPU_ISA", "AVX2"),
            ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
            # Code that torch.compile kept for the whole CPU would be found again.
            ("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor-{host_cpu().name}")),
        ):
            os.environ.setdefault(name, value)
