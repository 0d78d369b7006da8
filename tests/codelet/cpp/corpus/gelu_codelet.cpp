// Three GELUs, one of them with the hardware's vector instructions alone.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>
#include <cmath>

using namespace poplar;

class GeluErf : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678f));
    return true;
  }
};

class GeluTanhHalf : public Vertex {
public:
  Input<Vector<half, VectorLayout::SPAN, 8>> in;
  Output<Vector<half, VectorLayout::SPAN, 8>> out;
  bool compute() {
    constexpr float alpha = 0.7978845608f, beta = 0.044715f;
    for (unsigned i = 0; i < in.size(); ++i) {
      const float x = in[i];
      const float g = std::tanh(alpha * (x + beta * x * x * x));
      out[i] = 0.5f * x * (1.0f + g);
    }
    return true;
  }
};

class GeluAccumulators : public Vertex {
public:
  Input<Vector<half, VectorLayout::ONE_PTR, 8>> in;
  Output<Vector<half, VectorLayout::ONE_PTR, 8>> out;
  unsigned quads;
  bool compute() {
    const half4 *x = reinterpret_cast<const half4 *>(&in[0]);
    half4 *y = reinterpret_cast<half4 *>(&out[0]);
    for (unsigned i = 0; i < quads; ++i)
      y[i] = __builtin_ipu_f16v4hihoamp(x[i], float2{0, 0}, 0);
    return true;
  }
};
