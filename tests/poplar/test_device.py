"""Devices, their manager and the model: what programs do before they build a graph."""

from __future__ import annotations

import pytest

from abele import poplar
from abele.machine import systems


def test_manager__devices_of_a_size__are_aligned_groups() -> None:
    manager = poplar.DeviceManager.createDeviceManager()
    assert manager.getNumDevices() == 16 + 8 + 4 + 2 + 1
    pairs = manager.getDevices(poplar.TargetType.IPU, 2)
    assert [d.getDriverIDs() for d in pairs[:2]] == [[0, 1], [2, 3]]
    assert all(d.getTarget().getNumIPUs() == 2 for d in pairs)
    assert manager.getDevice(3).getId() == 3
    assert len(manager.getDevices()) == manager.getNumDevices()


def test_attach__group_with_a_taken_ipu__fails_until_it_is_detached() -> None:
    manager = poplar.DeviceManager()
    single = manager.getDevices(poplar.TargetType.IPU, 1)[1]
    pair = manager.getDevices(poplar.TargetType.IPU, 2)[0]
    assert single.attach()
    assert single.attach()
    assert not pair.attach()
    assert not pair.isAttached()
    single.detach()
    assert pair.attach()
    with manager.acquireAvailableDevice(2) as other:
        assert other.getDriverIDs() == [2, 3]
    assert not other.isAttached()


def test_manager__nothing_free_or_no_such_device__says_so() -> None:
    manager = poplar.DeviceManager(systems.bow())
    assert manager.acquireAvailableDevice().attach()
    with pytest.raises(poplar.poplar_error, match="no device of 1 IPU is free"):
        manager.acquireAvailableDevice()
    with pytest.raises(poplar.poplar_error, match=r"there is no device 5\n  try      0 to 0"):
        manager.getDevice(5)


def test_device__attributes_and_memory__are_the_systems() -> None:
    device = poplar.DeviceManager("bow-2000").getDevice(0)
    assert device.supportsRemoteBuffers()
    assert device.hasRemoteBuffers()
    assert device.getAttribute("num_tiles") == "1472"
    with pytest.raises(poplar.poplar_error, match="a device has no attribute 'colour'"):
        device.getAttribute("colour")


def test_virtual_device__fewer_tiles__has_them() -> None:
    device = poplar.IPUModel().createDevice()
    assert device.createVirtualDevice(4).getTarget().getNumTiles() == 4
    assert device.createVirtualDevice([7, 8, 9]).getTarget().getNumTiles() == 3
    with pytest.raises(poplar.invalid_machine_model, match="a virtual device of 2,000 tiles per IPU"):
        device.createVirtualDevice(2000)


def test_cpu_device__is_one_tile() -> None:
    assert poplar.createCPUDevice().getTarget().getNumTiles() == 1
    assert poplar.Device.createCPUDevice().getTarget().getTargetType() is poplar.TargetType.CPU
    assert poplar.DeviceManager().getDevices(poplar.TargetType.CPU)[0].getTarget().getNumWorkerContexts() == 1


@pytest.mark.parametrize(
    ("version", "tiles", "memory"), [("ipu1", 1216, 256), ("ipu2", 1472, 624), ("ipu21", 1472, 624)]
)
def test_ipu_model__each_architecture__has_its_tiles(version: str, tiles: int, memory: int) -> None:
    target = poplar.IPUModel(version).createDevice().getTarget()
    assert (target.getNumTiles(), target.getBytesPerTile()) == (tiles, memory * 1024)
    assert target.getTargetArchString() == version
    assert target.getTargetType() is poplar.TargetType.IPU_MODEL


FIELDS = {
    "numWorkerContexts": (4, lambda t: t.getNumWorkerContexts()),
    "memoryBytesPerTile": (1 << 20, lambda t: t.getBytesPerTile()),
    "interleavedMemoryElementIndex": (8, lambda t: t.getInterleavedMemoryElementIndex()),
    "tileClockFrequency": (2e9, lambda t: t.getTileClockFrequency()),
    "exchangeBytesPerCycle": (8, lambda t: t.getExchangeBytesPerCycle()),
    "memcpyBytesPerCycle": (4, lambda t: t.getMemcpyBytesPerCycle()),
    "tilesPerSharedExchangeBus": (4, lambda t: t.getTilesPerSharedExchangeBus()),
    "tilesPerSuperTile": (4, lambda t: t.getTilesPerSharedExchangeBus()),
    "supportsSuperTileSendReceive": (False, lambda t: t.supportsExchangeBusSharing()),
    "minIPUSyncDelay": (50, lambda t: t.system.ipu.sync.on_chip_cycles),
    "maxIPUSyncDelay": (99, lambda t: t.getMaxIPUSyncDelay()),
    "globalSyncCycles": (70, lambda t: t.getGlobalSyncCycles()),
    "instructionBytes": (8, lambda t: t.system.ipu.instruction_bytes),
    "dataPathWidth": (128, lambda t: t.getDataPathWidth()),
    "numStrideBits": (12, lambda t: t.getNumStrideBits()),
    "rptCountMax": (1000, lambda t: t.getRptCountMax()),
    "atomicStoreGranularity": (8, lambda t: t.getAtomicStoreGranularity()),
    "fp16InFp16OutConvUnitsPerTile": (8, lambda t: t.getFp16InFp16OutConvUnitsPerTile()),
    "fp16InFp32OutConvUnitsPerTile": (4, lambda t: t.getFp16InFp32OutConvUnitsPerTile()),
    "fp32InFp32OutConvUnitsPerTile": (4, lambda t: t.getFp32InFp32OutConvUnitsPerTile()),
    "convUnitMaxPipelineDepth": (6, lambda t: t.getConvUnitMaxPipelineDepth()),
}


@pytest.mark.parametrize("name", FIELDS)
def test_ipu_model__field_set__is_what_the_target_says(name: str) -> None:
    value, read = FIELDS[name]
    model = poplar.IPUModel()
    assert getattr(model, name) == read(model.createDevice().getTarget())
    setattr(model, name, value)
    assert getattr(model, name) == value
    assert read(model.createDevice().getTarget()) == value


def test_ipu_model__sizes_and_elements__make_the_machine() -> None:
    model = poplar.IPUModel("ipu1")
    model.numIPUs, model.tilesPerIPU = 2, 4
    model.memoryElementOffsets = [0, 0x8000, 0x10000]
    model.globalSyncCycles = 480
    model.compileIPUCode = False
    target = model.createDevice().getTarget()
    assert (target.getNumTiles(), target.getGlobalSyncCycles()) == (8, 480)
    assert target.getMemoryElementOffsets()[:3] == [0, 0x8000, 0x10000]
    assert (model.numIPUs, model.tilesPerIPU, model.IPUVersion) == (2, 4, "ipu1")


def test_ipu_model__many_ipus__have_links() -> None:
    model = poplar.IPUModel()
    model.numIPUs = 16
    assert model.createDevice().system.ipu_links.topology == "ladder"
    model.numIPUs = 5000
    with pytest.raises(poplar.invalid_machine_model, match="no ipu2 machine has 5,000 IPUs"):
        model.createDevice()


def test_ipu_model__wrong_field_value_or_option__is_refused() -> None:
    model = poplar.IPUModel()
    with pytest.raises(
        poplar.invalid_machine_model, match=r"no field 'tilesPerIpu'\n  try      did you mean 'tilesPerIPU'"
    ):
        model.tilesPerIpu = 4
    assert not hasattr(model, "colour")
    model.dataPathWidth = 65
    with pytest.raises(poplar.invalid_machine_model, match="65 is no multiple"):
        model.createDevice()
    model.dataPathWidth = 64
    model.memoryElementOffsets = [0, 5, 7]
    with pytest.raises(poplar.invalid_machine_model, match="must rise from 0 in equal steps"):
        model.createDevice()
    with pytest.raises(poplar.invalid_option, match="a device has no option 'fast'"):
        poplar.IPUModel().createDevice({"fast": "true"})
    with pytest.raises(poplar.invalid_machine_model, match="no IPU architecture is called 'ipu9'"):
        poplar.IPUModel("ipu9")
