"""One Poplar program on every kind of device."""

from __future__ import annotations

import numpy as np
import pytest

from abele import poplar
from abele.poplar import FLOAT, Device, Engine, Graph
from abele.poplar.program import Copy, Execute, Sequence


@poplar.codelet
class Double(poplar.MultiVertex):
    x: poplar.Input[poplar.Vector[FLOAT]]
    y: poplar.Output[poplar.Vector[FLOAT]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), self.num_workers):
            self.y[i] = 2.0 * self.x[i]


def model(version: str, ipus: int) -> Device:
    described = poplar.IPUModel(version)
    described.numIPUs = ipus
    described.tilesPerIPU = 8
    return described.createDevice()


@pytest.mark.parametrize(
    "device",
    [
        model("ipu1", 1),
        model("ipu1", 2),
        model("ipu2", 4),
        model("ipu21", 1),
        Device.createCPUDevice(),
        poplar.DeviceManager().getDevice(0).createVirtualDevice(8),
    ],
    ids=repr,
)
def test_program__on_every_device__gives_numpys_numbers(device: Device) -> None:
    graph = Graph(device.getTarget())
    tiles = graph.getTarget().getNumTiles()
    x, y, z = (graph.addVariable(FLOAT, [tiles, 13], name) for name in "xyz")
    cs = graph.addComputeSet("double")
    for tile in range(tiles):
        for t in (x, y):
            graph.setTileMapping(t[tile], tile)
        graph.setTileMapping(z[tile], tiles - 1 - tile)
        graph.setTileMapping(graph.addVertex(cs, Double, {"x": x[tile], "y": y[tile]}), tile)
    graph.createHostWrite("x", x)
    graph.createHostRead("z", z)
    data = np.arange(tiles * 13, dtype=np.float32)
    with Engine(graph, Sequence([Execute(cs), Copy(y, z)])) as engine:
        engine.load(device)
        engine.writeTensor("x", data)
        engine.run()
        np.testing.assert_array_equal(engine.readTensor("z").reshape(-1), 2 * data)
        assert engine.getReport().cycles().total > 0
