"""A network of spiking neurons whose state stays inside its vertices.

Leaky integrate-and-fire neurons are spread over all tiles of a Bow, one vertex per worker. Membrane voltages and
refractory times are *state* of the vertices: no tensor holds them, they persist from one superstep to the next. What
the neurons share is one vector of spikes. A step is a superstep that reads the last spikes of all presynaptic neurons,
and a copy that makes the new spikes the last ones; the exchange between them is the network's wiring.
"""

from __future__ import annotations

import argparse

import numpy as np

import abele as ab
from abele import Input, Output, Vector, f32, i32, u8, u32


@ab.codelet
class Neurons(ab.Vertex):
    """One time step of a few neurons with equally many synapses each."""

    spiked: Input[Vector[u8]]
    sources: Input[Vector[u32]]
    weights: Input[Vector[f32]]
    drive: Input[Vector[f32]]
    spikes: Output[Vector[u8]]
    voltage: Vector[f32]
    waiting: Vector[i32]
    decay: f32
    threshold: f32
    refractory: i32

    def compute(self):
        synapses = len(self.sources) // len(self.spikes)
        for n in range(len(self.spikes)):
            current = self.drive[n]
            for s in range(n * synapses, (n + 1) * synapses):
                if self.spiked[self.sources[s]] != 0:
                    current += self.weights[s]
            fires = False
            if self.waiting[n] > 0:
                self.waiting[n] -= 1
            else:
                self.voltage[n] = self.voltage[n] * self.decay + current
                fires = self.voltage[n] >= self.threshold
            if fires:
                self.voltage[n] = 0.0
                self.waiting[n] = self.refractory
            self.spikes[n] = 1 if fires else 0


def wiring(neurons, synapses, seed=0):
    """Sources, weights and drive of a random network: four of five neurons excite, one inhibits.

    Weights are multiples of 1/256, so that sums are exact in any order.
    """
    rng = np.random.default_rng(seed)
    sources = rng.integers(0, neurons, (neurons, synapses), dtype=np.uint32)
    strength = rng.integers(1, 40, (neurons, synapses)) / 256
    weights = np.where(sources % 5 == 4, -4 * strength, strength).astype(np.float32)
    drive = (rng.integers(0, 32, neurons) / 256).astype(np.float32)
    return sources, weights, drive


def spiking(sources, weights, drive, steps, decay=0.9375, threshold=1.0, refractory=3, system="bow"):
    """An engine that runs ``steps`` time steps and counts the spikes of each in ``counts``."""
    neurons, synapses = sources.shape
    graph = ab.Graph(system)
    workers = graph.num_tiles * graph.system.ipu.num_workers
    each = -(-neurons // workers)
    vertices = neurons // each
    assert vertices * each == neurons, "as many neurons for each worker"
    tile = np.arange(vertices) % graph.num_tiles
    spiked = graph.variable(u8, (neurons,), name="spiked", initial=0).map_linear()

    def per_vertex(dtype, name, values=None, width=each):
        return graph.variable(dtype, (vertices, width), name=name, initial=values).map_rows(tile)

    spikes = per_vertex(u8, "spikes")
    step = graph.compute_set("neurons")
    step.vertices(
        Neurons,
        tile=tile,
        spiked=ab.shared(spiked),
        sources=per_vertex(u32, "sources", sources.reshape(vertices, -1), each * synapses),
        weights=per_vertex(f32, "weights", weights.reshape(vertices, -1), each * synapses),
        drive=per_vertex(f32, "drive", drive.reshape(vertices, -1)),
        spikes=spikes,
        voltage=np.zeros((vertices, each)),
        waiting=np.zeros((vertices, each)),
        decay=decay,
        threshold=threshold,
        refractory=refractory,
    )
    raster = graph.host_stream_out("raster", u8, (neurons,))
    body = ab.Sequence(ab.Execute(step), ab.Copy(spikes.flatten(), spiked), ab.Copy(spiked, raster))
    return ab.Engine(graph, ab.Repeat(steps, body))


def reference(sources, weights, drive, steps, decay=0.9375, threshold=1.0, refractory=3):
    """The spikes of every step in NumPy, u8[steps, neurons]."""
    neurons = len(drive)
    voltage, waiting, spiked = np.zeros(neurons, np.float32), np.zeros(neurons, int), np.zeros(neurons, np.uint8)
    raster = np.empty((steps, neurons), np.uint8)
    for t in range(steps):
        current = drive + (weights * spiked[sources]).sum(axis=1)
        ready = waiting == 0
        waiting = np.maximum(waiting - 1, 0)
        fused = (voltage.astype(np.float64) * decay + current).astype(np.float32)
        voltage = np.where(ready, fused, voltage)
        fires = ready & (voltage >= threshold)
        voltage[fires], waiting[fires] = 0, refractory
        raster[t] = spiked = fires.astype(np.uint8)
    return raster


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="time steps")
    parser.add_argument("--neurons", type=int, default=6 * 1472 * 2, help="a multiple of 8,832")
    arguments = parser.parse_args()
    network = wiring(arguments.neurons, synapses=32)
    raster = np.empty((arguments.steps, arguments.neurons), np.uint8)
    with spiking(*network, arguments.steps) as engine:
        engine.connect("raster", raster)
        engine.run()
        wrong = int((raster != reference(*network, arguments.steps)).sum())
        print(f"{arguments.neurons} neurons, {arguments.steps} steps; {wrong} spikes differ from NumPy")
        shades = " .:-=+*#%@"
        rate = raster.mean(axis=1)
        print("active   " + "".join(shades[min(9, int(r * 40))] for r in rate[:100]))
        print(engine.report.summary())


if __name__ == "__main__":
    main()
