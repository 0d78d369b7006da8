// Layer norm of rows in half with statistics in float; and RMS norm over workers.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

template <typename T> class LayerNorm : public Vertex {
public:
  Vector<Input<Vector<T, VectorLayout::SPAN, 8>>> in;
  Input<Vector<T>> gamma, beta;
  Vector<Output<Vector<T, VectorLayout::ONE_PTR, 8>>> out;
  const float eps;

  bool compute() {
    for (unsigned r = 0; r < in.size(); ++r) {
      const auto &row = in[r];
      const unsigned n = row.size();
      float mean = 0.f, variance = 0.f;
      for (unsigned i = 0; i < n; ++i)
        mean += float(row[i]);
      mean /= n;
      for (unsigned i = 0; i < n; ++i) {
        const float d = float(row[i]) - mean;
        variance += d * d;
      }
      const float scale = 1.0f / std::sqrt(variance / n + eps);
      for (unsigned i = 0; i < n; ++i)
        out[r][i] = T((float(row[i]) - mean) * scale * float(gamma[i]) + float(beta[i]));
    }
    return true;
  }
};

template class LayerNorm<float>;
template class LayerNorm<half>;

class RmsNorm : public MultiVertex {
public:
  InOut<Vector<float>> x;
  Input<Vector<float>> weight;
  bool compute(unsigned w) {
    const unsigned width = weight->size();
    for (unsigned r = w; r < x.size() / width; r += 6) {
      float *row = &x[r * width];
      float squares = 0;
      for (unsigned i = 0; i < width; ++i)
        squares += row[i] * row[i];
      const float s = 1.0f / sqrtf(squares / width + 1e-5f);
      for (unsigned i = 0; i < width; ++i)
        row[i] *= s * weight[i];
    }
    return true;
  }
};
