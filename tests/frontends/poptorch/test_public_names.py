"""Names used by PopTorch programs, and the ways in which ``import poptorch`` finds them here."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from abele import poptorch

# What the public documentation of PopTorch lists, module by module.
NAMES = """
    __version__ trainingModel inferenceModel load PoplarExecutor DataLoader AsynchronousDataAccessor Options
    TensorLocationSettings Stage Phase PipelinedExecution ShardedExecution SerialPhasedExecution
    ParallelPhasedExecution Attribute BlockId ConfigFileError ipuHardwareIsAvailable ipuHardwareVersion setLogLevel
    isRunningOnIpu createPoptorchError Error RecoverableError UnrecoverableError registerPreCompileHook
    registerPostCompileHook ICustomArgParser registerCustomArgParser module_repr print Block BeginBlock
    BlockFunction removeBlocks NameScope identity_loss for_loop cond nop recomputationCheckpoint ipu_print_tensor
    set_available_memory set_overlap_for_input set_overlap_for_output serializedMatMul dynamic_slice dynamic_update
    ctc_beam_search_decoder custom_op CPU MultiConv fps nearest accessAttributes getIpuTensorId
    importPoptorchMetadataFromFile registerGeometricCustomArgParsers MeanReductionStrategy DataLoaderMode
    SharingStrategy OutputMode ConnectionType HalfFloatCastingBehavior ReductionType SyncPattern
    MatMulSerializationMode Liveness OverlapMode AutoStage MultiConvPlanType CommGroupType VariableRetrievalMode
    optim enums options poptorch_core profiling testing _impl _logging
"""

MEMBERS = {
    "optim": "SGD Adam AdamW RMSprop LAMB Optimizer VariableAttributes",
    "poptorch_core": "Error TestErrorType _throwTestError _validateOptions isCompilingWithDispatcher",
    "_impl": "isDispatchTracing _restoreWrapperIfNecessary",
    "_logging": "setPopartLogLevel setLogLevel",
    "profiling": "Channel",
    "testing": "allclose",
    "options": "Options _DistributedOptions _TrainingOptions _PrecisionOptions _JitOptions _TensorLocationOptions",
}

ENUMS = {
    "OutputMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "VariableRetrievalMode": {"OnePerGroup": 0, "AllReplicas": 2},
    "AutoStage": {"SameAsIpu": 0, "AutoIncrement": 1},
    "SharingStrategy": {"SharedMemory": 0, "FileSystem": 1, "Fork": 2, "ForkServer": 3},
    "CommGroupType": {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3},
    "Liveness": {
        "AlwaysLive": 0,
        "OffChipAfterFwd": 1,
        "OffChipAfterFwdNoOverlap": 2,
        "OffChipAfterEachPhase": 3,
    },
}


@pytest.mark.parametrize("name", NAMES.split())
def test_public_names__of_poptorch__are_there(name: str) -> None:
    assert getattr(poptorch, name) is not None
    assert name in poptorch.__all__


@pytest.mark.parametrize("module", MEMBERS)
def test_submodules__of_poptorch__have_their_names_and_can_be_imported(module: str) -> None:
    found = importlib.import_module(f"abele.poptorch.{module}")
    assert found is getattr(poptorch, module)
    for name in MEMBERS[module].split():
        assert hasattr(found, name), name


@pytest.mark.parametrize("name", ENUMS)
def test_enums__members__have_poptorchs_numbers(name: str) -> None:
    kind = getattr(poptorch, name)
    assert {member.name: member.value for member in kind} == ENUMS[name]
    assert getattr(poptorch.enums, name) is kind


PROGRAM = """
import sys
import poptorch
import poptorch.optim
from poptorch.enums import OutputMode
model = poptorch.inferenceModel(lambda x: x + int(sys.argv[1]))
print(type(model).__name__, sys.argv[1:], poptorch.Options().output_mode == OutputMode.Default, __name__)
"""


def test_module__run_with_a_program__finds_poptorch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [sys.executable, "-m", "abele.poptorch", str(tmp_path / "program.py"), "3"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout == "PoplarExecutor ['3'] True __main__\n"


def test_package__that_exports_abeles_names__is_a_poptorch(tmp_path: Path) -> None:
    package = tmp_path / "poptorch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys\nfrom abele.poptorch import *\nimport abele.poptorch as _abele\n"
        "for _name in ('optim', 'enums', 'options', 'poptorch_core', '_impl', '_logging', 'profiling', 'testing'):\n"
        "    sys.modules[f'poptorch.{_name}'] = getattr(_abele, _name)\n"
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [sys.executable, str(tmp_path / "program.py"), "5"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout == "PoplarExecutor ['5'] True __main__\n"


def test_install__beside_another_poptorch__is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "poptorch", sys)
    with pytest.raises(ImportError, match="poptorch is imported already"):
        poptorch.install()
    monkeypatch.delitem(sys.modules, "poptorch")
    poptorch.install("poptorch_under_test")
    assert importlib.import_module("poptorch_under_test.optim") is poptorch.optim
    for name in [n for n in sys.modules if n.startswith("poptorch_under_test")]:
        del sys.modules[name]
