// Lennard-Jones over a neighbour list and a leapfrog step; reciprocal root of the tile.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

class LennardJones : public Vertex {
public:
  Input<Vector<float>> position; // [atom][3]
  Input<Vector<unsigned short>> neighbours;
  Input<Vector<unsigned short>> first;
  Output<Vector<float>> force;
  Output<float> energy;
  float epsilon, sigma, cutoff;

  bool compute() {
    const auto atoms = first.size() - 1;
    const float s2 = sigma * sigma, c2 = cutoff * cutoff;
    float e = 0.0;
    for (unsigned i = 0; i < atoms; ++i) {
      float f[3] = {0, 0, 0};
      for (unsigned n = first[i]; n < first[i + 1]; ++n) {
        const unsigned j = neighbours[n];
        float d[3], r2 = 0;
        for (int k = 0; k < 3; ++k) {
          d[k] = position[3 * i + k] - position[3 * j + k];
          r2 += d[k] * d[k];
        }
        if (r2 > c2)
          continue;
        const float q2 = s2 / r2, q6 = q2 * q2 * q2;
        e += 2.0 * epsilon * (q6 * q6 - q6);
        const float scale = 24.0f * epsilon * (2.0f * q6 * q6 - q6) / r2;
        for (int k = 0; k < 3; ++k)
          f[k] += scale * d[k];
      }
      for (int k = 0; k < 3; ++k)
        force[3 * i + k] = f[k];
    }
    *energy = e;
    return true;
  }
};

class Leapfrog : public MultiVertex {
public:
  InOut<Vector<float>> x, v;
  Input<Vector<float>> f;
  const float dt, mass;
  bool compute(unsigned w) {
    for (unsigned i = w; i < x.size(); i += numWorkers()) {
      v[i] += f[i] / mass * dt;
      x[i] += v[i] * dt;
    }
    return true;
  }
};
