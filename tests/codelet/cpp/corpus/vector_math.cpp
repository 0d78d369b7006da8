// Namespaced intrinsics and vector types without a namespace.
#include <poplar/Vertex.hpp>
#include <ipu_vector_math>
#include <ipu_builtins.h>

class Softplus2 : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float, poplar::VectorLayout::ONE_PTR, 8>> in;
  poplar::Output<poplar::Vector<float, poplar::VectorLayout::ONE_PTR, 8>> out;
  unsigned pairs;
  bool compute() {
    const float2 *x = reinterpret_cast<const float2 *>(&in[0]);
    float2 *y = reinterpret_cast<float2 *>(&out[0]);
    for (unsigned i = 0; i < pairs; ++i) {
      const float2 e = ipu::exp(x[i]);
      const float2 one = {1.0f, 1.0f};
      y[i] = ipu::log(e + one);
    }
    return true;
  }
};

class ClampedRelu : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<half, poplar::VectorLayout::SPAN, 8>> x;
  bool compute() {
    half4 *v = reinterpret_cast<half4 *>(&x[0]);
    const half4 zero = {0, 0, 0, 0};
    const half4 six = {6, 6, 6, 6};
    for (unsigned i = 0; i < x.size() / 4; ++i)
      v[i] = ipu::min(ipu::max(v[i], zero), six);
    return true;
  }
};
