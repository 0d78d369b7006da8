// Travelling salesman by two-opt, and the fitness of a population.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

class TwoOpt : public Vertex {
  float dist(unsigned a, unsigned b) const {
    return std::hypot(xs[a] - xs[b], ys[a] - ys[b]);
  }

public:
  Input<Vector<float>> xs, ys;
  InOut<Vector<unsigned short>> tour;
  Output<float> length;
  unsigned maxPasses;

  bool compute() {
    const unsigned n = tour.size();
    for (unsigned pass = 0; pass < maxPasses; ++pass) {
      bool improved = false;
      for (unsigned i = 0; i + 2 < n; ++i)
        for (unsigned j = i + 2; j < n; ++j) {
          const unsigned a = tour[i], b = tour[i + 1], c = tour[j], d = tour[(j + 1) % n];
          if (a == d)
            continue;
          if (dist(a, c) + dist(b, d) + 1e-6f < dist(a, b) + dist(c, d)) {
            for (unsigned l = i + 1, r = j; l < r; ++l, --r) {
              const unsigned short t = tour[l];
              tour[l] = tour[r];
              tour[r] = t;
            }
            improved = true;
          }
        }
      if (!improved)
        break;
    }
    float sum = 0;
    for (unsigned i = 0; i < n; ++i)
      sum += dist(tour[i], tour[(i + 1) % n]);
    length = sum;
    return true;
  }
};
