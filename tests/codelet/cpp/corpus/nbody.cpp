// All pairs of bodies with softening, positions and masses together.
#include <poplar/Vertex.hpp>
#include <cmath>

struct Body {
  float x, y, z, m;
};

class Forces : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float, poplar::VectorLayout::SPAN, 16>> own;
  poplar::Input<poplar::Vector<float, poplar::VectorLayout::SPAN, 16>> all;
  poplar::Output<poplar::Vector<float>> acceleration; // x, y, z
  static constexpr float softening = 1e-3f;

  bool compute() {
    const Body *mine = reinterpret_cast<const Body *>(own.begin());
    const Body *others = reinterpret_cast<const Body *>(all.begin());
    const unsigned n = all.size() / 4;
    for (unsigned i = 0; i < own.size() / 4; ++i) {
      float ax = 0, ay = 0, az = 0;
      for (unsigned j = 0; j < n; ++j) {
        const float dx = others[j].x - mine[i].x, dy = others[j].y - mine[i].y, dz = others[j].z - mine[i].z;
        const float r2 = dx * dx + dy * dy + dz * dz + softening;
        const float inv = 1.0f / sqrtf(r2);
        const float s = others[j].m * inv * inv * inv;
        ax += dx * s;
        ay += dy * s;
        az += dz * s;
      }
      acceleration[3 * i] = ax;
      acceleration[3 * i + 1] = ay;
      acceleration[3 * i + 2] = az;
    }
    return true;
  }
};
