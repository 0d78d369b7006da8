// Host program and codelet in one file: popc sees the vertex, the host compiler the rest.
#ifdef __POPC__
#include <poplar/Vertex.hpp>

class PiVertex : public poplar::Vertex {
public:
  poplar::Output<poplar::Vector<unsigned>> hits;
  unsigned iterations;
  unsigned seed;

  bool compute() {
    unsigned state = seed;
    auto next = [&state]() -> float {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      return (state >> 8) * (1.0f / 16777216.0f);
    };
    unsigned count = 0;
    for (unsigned i = 0; i < iterations; ++i) {
      const float x = next(), y = next();
      count += x * x + y * y < 1.0f ? 1 : 0;
    }
    hits[0] = count;
    return true;
  }
};

#else
#include <boost/program_options.hpp>
#include <iostream>
#include <poplar/DeviceManager.hpp>
#include <poplar/Engine.hpp>
#include <poplar/Graph.hpp>

int main(int argc, char **argv) {
  poplar::DeviceManager manager;
  auto devices = manager.getDevices(poplar::TargetType::IPU, 1);
  poplar::Graph graph(devices.front().getTarget());
  graph.addCodelets(__FILE__);
  std::cout << "running\n";
  return 0;
}
#endif
