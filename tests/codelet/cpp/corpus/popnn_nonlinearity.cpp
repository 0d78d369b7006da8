// Non-linearities and their gradients, forward in place.
#include "poplibs_support/ExternalCodelet.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

namespace popnn {
enum class NonLinearityType { SIGMOID, RELU, TANH, GELU, SWISH, HARD_SIGMOID };
}
using popnn::NonLinearityType;

namespace {

float nonlinearity(NonLinearityType t, float x) {
  switch (t) {
  case NonLinearityType::SIGMOID:
    return 1.0f / (1.0f + std::exp(-x));
  case NonLinearityType::RELU:
    return x > 0.0f ? x : 0.0f;
  case NonLinearityType::TANH:
    return std::tanh(x);
  case NonLinearityType::GELU:
    return 0.5f * x * (1 + std::tanh(x * 0.7978845608f * (1 + 0.044715f * x * x)));
  case NonLinearityType::SWISH:
    return x / (1.0f + std::exp(-x));
  case NonLinearityType::HARD_SIGMOID:
    return x < -2.5f ? 0.f : x > 2.5f ? 1.f : 0.2f * x + 0.5f;
  }
  return 0;
}

} // namespace

namespace popnn {

template <typename FPType, NonLinearityType nlType> class NonLinearity2DInPlace : public Vertex {
public:
  Vector<InOut<Vector<FPType, VectorLayout::SPAN, 8>>, VectorLayout::SPAN> data;

  bool compute() {
    for (unsigned i = 0; i < data.size(); ++i)
      for (unsigned j = 0; j < data[i].size(); ++j)
        data[i][j] = FPType(nonlinearity(nlType, float(data[i][j])));
    return true;
  }
};

template <typename FPType, NonLinearityType nlType> class NonLinearityGrad1D : public MultiVertex {
public:
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> outGrad;
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> out;
  Output<Vector<FPType, VectorLayout::ONE_PTR, 8>> inGrad;
  const unsigned n;

  bool compute(unsigned wid) {
    for (unsigned i = wid; i < n; i += numWorkers()) {
      const float y = float(out[i]);
      const float d = nlType == NonLinearityType::SIGMOID ? y * (1.0f - y)
                      : nlType == NonLinearityType::TANH  ? 1.0f - y * y
                                                          : (y > 0 ? 1.f : 0.f);
      inGrad[i] = outGrad[i] * FPType(d);
    }
    return true;
  }
};

#define INSTANTIATE_NL(T)                                                                                              \
  template class NonLinearity2DInPlace<T, NonLinearityType::SIGMOID>;                                                  \
  template class NonLinearity2DInPlace<T, NonLinearityType::RELU>;                                                     \
  template class NonLinearity2DInPlace<T, NonLinearityType::TANH>;                                                     \
  template class NonLinearity2DInPlace<T, NonLinearityType::GELU>;                                                     \
  template class NonLinearity2DInPlace<T, NonLinearityType::SWISH>;                                                    \
  template class NonLinearity2DInPlace<T, NonLinearityType::HARD_SIGMOID>;                                             \
  template class NonLinearityGrad1D<T, NonLinearityType::SIGMOID>;                                                     \
  template class NonLinearityGrad1D<T, NonLinearityType::TANH>;                                                        \
  template class NonLinearityGrad1D<T, NonLinearityType::RELU>;
INSTANTIATE_NL(float)
INSTANTIATE_NL(half)

} // namespace popnn
