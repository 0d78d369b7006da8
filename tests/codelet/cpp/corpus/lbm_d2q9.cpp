// Lattice Boltzmann: a collision with nine speeds for a cell, streaming from neighbours, bounce-back on walls.
#include <poplar/Vertex.hpp>
#include <array>

using namespace poplar;

enum Direction { C, E, N, W, S, NE, NW, SW, SE, NumSpeeds };
constexpr std::array<float, NumSpeeds> weights{4.f / 9,  1.f / 9,  1.f / 9,  1.f / 9, 1.f / 9,
                                               1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36};
constexpr std::array<int, NumSpeeds> cx{0, 1, 0, -1, 0, 1, -1, -1, 1};
constexpr std::array<int, NumSpeeds> cy{0, 0, 1, 0, -1, 1, 1, -1, -1};
constexpr std::array<int, NumSpeeds> opposite{C, W, S, E, N, SW, SE, NE, NW};

class Collide : public Vertex {
public:
  InOut<Vector<float>> cells; // [cell][speed]
  Input<Vector<bool>> obstacle;
  float omega;

  bool compute() {
    for (unsigned i = 0; i < obstacle.size(); ++i) {
      float *f = &cells[i * NumSpeeds];
      if (obstacle[i]) {
        float t[NumSpeeds];
        for (int k = 0; k < NumSpeeds; ++k)
          t[k] = f[k];
        for (int k = 0; k < NumSpeeds; ++k)
          f[opposite[k]] = t[k];
        continue;
      }
      float density = 0.f, ux = 0.f, uy = 0.f;
      for (int k = 0; k < NumSpeeds; ++k) {
        density += f[k];
        ux += cx[k] * f[k];
        uy += cy[k] * f[k];
      }
      ux /= density;
      uy /= density;
      const float square = ux * ux + uy * uy;
      for (int k = 0; k < NumSpeeds; ++k) {
        const float u = cx[k] * ux + cy[k] * uy;
        const float equilibrium = weights[k] * density * (1.f + 3.f * u + 4.5f * u * u - 1.5f * square);
        f[k] += omega * (equilibrium - f[k]);
      }
    }
    return true;
  }
};

class StreamPeriodic : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  int nx, ny;
  bool compute() {
    for (int y = 0; y < ny; ++y)
      for (int x = 0; x < nx; ++x)
        for (int k = 0; k < NumSpeeds; ++k) {
          const int sx = (x - cx[k] + nx) % nx, sy = (y - cy[k] + ny) % ny;
          out[(y * nx + x) * NumSpeeds + k] = in[(sy * nx + sx) * NumSpeeds + k];
        }
    return true;
  }
};
