// A 3 x 3 blur in float2, rows over workers, as in stencil benchmarks.
#include <poplar/Vertex.hpp>
#include <poplar/VectorTypes.hpp>

using namespace poplar;

constexpr auto NumWorkers = 6;

class GaussianBlur : public MultiVertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> in;   // [h + 2][w + 2]
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> out; // [h][w]
  unsigned width, height;

  bool compute(unsigned workerId) {
    const unsigned pitch = width + 2;
    const auto rows = height / NumWorkers + (workerId < height % NumWorkers);
    const auto from = workerId * (height / NumWorkers) +
                      (workerId < height % NumWorkers ? workerId : height % NumWorkers);
    for (auto y = from; y < from + rows; y++) {
      const float *nw = &in[y * pitch], *w = nw + pitch, *sw = w + pitch;
      for (unsigned x = 0; x < width; x++) {
        const float corners = nw[x] + nw[x + 2] + sw[x] + sw[x + 2];
        const float edges = nw[x + 1] + w[x] + w[x + 2] + sw[x + 1];
        out[y * width + x] = (corners + 2.f * edges + 4.f * w[x + 1]) * 0.0625f;
      }
    }
    return true;
  }
};

class AverageFloat2 : public Vertex {
public:
  Input<Vector<float, VectorLayout::SPAN, 8>> a;
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> out;
  bool compute() {
    const auto *v = reinterpret_cast<const float2 *>(&a[0]);
    float2 sum{0.0f, 0.0f};
    for (unsigned i = 0; i < a.size() / 2; ++i)
      sum += v[i];
    *reinterpret_cast<float2 *>(&out[0]) = sum * (2.0f / a.size());
    return true;
  }
};
