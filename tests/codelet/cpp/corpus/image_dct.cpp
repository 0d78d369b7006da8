// The 8 x 8 cosine transform of blocks, by a table of cosines made when it is compiled.
#include <poplar/Vertex.hpp>
#include <cmath>

namespace dct {

struct Table {
  float c[8][8];
  constexpr Table() : c() {
    // cos((2 x + 1) u pi / 16) by symmetry of the first quadrant
    constexpr float q[9] = {1.f, 0.980785280f, 0.923879533f, 0.831469612f, 0.707106781f, 0.555570233f, 0.382683432f, 0.195090322f, 0.f};
    for (int u = 0; u < 8; ++u)
      for (int x = 0; x < 8; ++x) {
        const int k = (2 * x + 1) * u % 32;
        const int f = k > 16 ? 32 - k : k;
        const float cosine = f > 8 ? -q[16 - f] : q[f];
        c[u][x] = cosine * (u == 0 ? 0.353553391f : 0.5f);
      }
  }
};
constexpr Table table;

class Forward8x8 : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> in;
  poplar::Output<poplar::Vector<float>> out;
  bool compute() {
    for (unsigned b = 0; b < in.size() / 64; ++b) {
      float rows[64];
      for (int y = 0; y < 8; ++y)
        for (int u = 0; u < 8; ++u) {
          float s = 0;
          for (int x = 0; x < 8; ++x)
            s += table.c[u][x] * in[64 * b + 8 * y + x];
          rows[8 * y + u] = s;
        }
      for (int v = 0; v < 8; ++v)
        for (int u = 0; u < 8; ++u) {
          float s = 0;
          for (int y = 0; y < 8; ++y)
            s += table.c[v][y] * rows[8 * y + u];
          out[64 * b + 8 * v + u] = s;
        }
    }
    return true;
  }
};

} // namespace dct
