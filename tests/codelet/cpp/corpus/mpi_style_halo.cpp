// Copies of borders by memcpy and std::copy, in the style of codes that came from clusters.
#include <algorithm>
#include <cstring>
#include <poplar/Vertex.hpp>

namespace halo {

class Pack : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> field; // [h][w]
  poplar::Output<poplar::Vector<float>> west, east, north, south;
  unsigned w;
  bool compute() {
    const unsigned h = field.size() / w;
    std::memcpy(&north[0], &field[0], w * sizeof(float));
    std::copy(&field[(h - 1) * w], &field[(h - 1) * w] + w, south.begin());
    for (unsigned y = 0; y < h; ++y) {
      west[y] = field[y * w];
      east[y] = field[y * w + w - 1];
    }
    return true;
  }
};

class Fill : public poplar::Vertex {
public:
  poplar::Output<poplar::Vector<int>> out;
  int value;
  bool compute() {
    std::fill(out.begin(), out.end(), value);
    if (value == 0)
      std::memset(&out[0], 0, out.size() * sizeof(int));
    return true;
  }
};

} // namespace halo
