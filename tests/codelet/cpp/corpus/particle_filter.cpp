// Weights of particles, systematic resampling, and an estimate.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

class UpdateWeights : public Vertex {
public:
  Input<Vector<float>> particles;
  Input<float> measurement;
  Output<Vector<float>> weights;
  Output<float> sum;
  float sigma;
  bool compute() {
    float total = 0;
    for (unsigned i = 0; i < particles.size(); ++i) {
      const float d = (particles[i] - *measurement) / sigma;
      weights[i] = expf(-0.5f * d * d);
      total += weights[i];
    }
    *sum = total;
    return true;
  }
};

class Resample : public Vertex {
public:
  Input<Vector<float>> weights, particles;
  Output<Vector<float>> resampled;
  float offset;
  bool compute() {
    const unsigned n = particles.size();
    float total = 0;
    for (unsigned i = 0; i < n; ++i)
      total += weights[i];
    const float each = total / n;
    unsigned j = 0;
    float cumulative = weights[0];
    for (unsigned i = 0; i < n; ++i) {
      const float target = (i + offset) * each;
      while (cumulative < target && j + 1 < n)
        cumulative += weights[++j];
      resampled[i] = particles[j];
    }
    return true;
  }
};
