// Bellman-Ford relaxation until nothing changes on the tile; unreachable is the largest number.
#include <poplar/Vertex.hpp>
#include <climits>
#include <cstdint>

class Relax : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<uint16_t>> from;
  poplar::Input<poplar::Vector<uint16_t>> to;
  poplar::Input<poplar::Vector<uint32_t>> weight;
  poplar::InOut<poplar::Vector<uint32_t>> distance;
  poplar::Output<uint32_t> rounds;

  bool compute() {
    bool changed;
    uint32_t n = 0;
    do {
      changed = false;
      for (uint32_t e = 0; e < from.size(); ++e) {
        const uint32_t d = distance[from[e]];
        if (d == UINT_MAX)
          continue;
        if (d + weight[e] < distance[to[e]]) {
          distance[to[e]] = d + weight[e];
          changed = true;
        }
      }
      ++n;
    } while (changed);
    *rounds = n;
    return true;
  }
};
