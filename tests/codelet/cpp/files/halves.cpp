// Halves and vector types.
#include <ipu_builtins.h>
#include <ipu_intrinsics>
#include <ipu_vector_math>
#include <ipudef.h>
#include <poplar/AvailableVTypes.h>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <poplar/VectorTypes.hpp>

using namespace poplar;

class HalfSteps : public Vertex {
public:
  Input<Vector<half>> x;
  Input<Vector<half>> y;
  Output<Vector<half>> out;
  half scale;

  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      out[i] = x[i] * scale + y[i]; // rounded after the product, and after the sum
    return true;
  }
};

class HalfSum : public Vertex {
public:
  Input<Vector<half>> x;
  Output<half> sum;
  Output<float> wide;

  bool compute() {
    half s = 0;
    float w = 0;
    for (half v : x) {
      s += v;
      w += v;
    }
    *sum = s;
    *wide = w;
    return true;
  }
};

class Float2Scale : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> in;
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> out;
  unsigned n;
  float k;

  bool compute() {
    const auto *from = reinterpret_cast<const float2 *>(&in[0]);
    auto *to = reinterpret_cast<float2 *>(&out[0]);
    for (unsigned i = 0; i < n / 2; ++i)
      to[i] = from[i] * k + float2{1.0f, 2.0f};
    return true;
  }
};

class Half4Add : public Vertex {
public:
  Input<Vector<half, VectorLayout::SPAN, 8>> a;
  Input<Vector<half, VectorLayout::ONE_PTR, 8>> b;
  Output<Vector<half, VectorLayout::ONE_PTR, 8>> out;

  bool compute() {
    const half4 *pa = reinterpret_cast<const half4 *>(a.begin());
    const half4 *pb = reinterpret_cast<const half4 *>(&b[0]);
    half4 *to = reinterpret_cast<half4 *>(&out[0]);
    const unsigned quads = a.size() / 4;
    for (unsigned i = 0; i < quads; ++i)
      ipu::store_postinc(&to, ipu::load_postinc(&pa, 1) + ipu::load_postinc(&pb, 1), 1);
    for (unsigned i = quads * 4; i < a.size(); ++i)
      out[i] = a[i] + b[i];
    return true;
  }
};

class Half2Dot : public Vertex {
public:
  Input<Vector<half, VectorLayout::SPAN, 4>> a;
  Input<Vector<half, VectorLayout::SPAN, 4>> b;
  Output<float> out;

  bool compute() {
    float2 sums = {0.0f, 0.0f};
    for (unsigned i = 0; i + 1 < a.size(); i += 2) {
      half2 x = *reinterpret_cast<const half2 *>(&a[i]);
      half2 y = {b[i], b[i + 1]};
      sums += __builtin_ipu_f16v2tof32(x) * __builtin_ipu_f16v2tof32(y);
    }
    *out = sums[0] + sums[1];
    return true;
  }
};

class VectorMath : public Vertex {
public:
  Input<Vector<float, VectorLayout::SPAN, 8>> in;
  Vector<Output<Vector<float, VectorLayout::SPAN, 8>>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); i += 2) {
      float2 x = *reinterpret_cast<const float2 *>(&in[i]);
      auto put = [&](unsigned row, float2 value) { *reinterpret_cast<float2 *>(&out[row][i]) = value; };
      put(0, ipu::exp(x));
      put(1, ipu::tanh(x));
      put(2, ipu::sigmoid(x));
      put(3, ipu::max(x, float2{0.0f, 0.5f}));
      put(4, ipu::fma(x, x, x));
      put(5, __builtin_ipu_f32v2absadd(x, x));
      put(6, ipu::rsqrt(ipu::abs(x) + 1.0f));
      put(7, __builtin_ipu_f32v2clamp(x, float2{-1.0f, 1.0f}));
      put(8, ipu::log(ipu::sqrt(ipu::fabs(x) + 1.0f)));
    }
    return true;
  }
};

class HalfMath : public Vertex {
public:
  Input<Vector<half, VectorLayout::SPAN, 8>> in;
  Vector<Output<Vector<half, VectorLayout::SPAN, 8>>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); i += 4) {
      half4 x = *reinterpret_cast<const half4 *>(&in[i]);
      auto put = [&](unsigned row, half4 value) { *reinterpret_cast<half4 *>(&out[row][i]) = value; };
      put(0, __builtin_ipu_f16v4exp(x));
      put(1, __builtin_ipu_f16v4tanh(x));
      put(2, __builtin_ipu_f16v4max(x, half4{0, 0, 1, 1}));
      put(3, __builtin_ipu_f16v4absadd(x, x));
      put(4, __builtin_ipu_f16v4sigm(x));
    }
    return true;
  }
};

class Bytes : public Vertex {
public:
  Input<Vector<unsigned char, VectorLayout::SPAN, 4>> in;
  Output<Vector<unsigned char, VectorLayout::SPAN, 4>> out;
  Output<unsigned> bits;

  bool compute() {
    unsigned total = 0;
    for (rptsize_t i = 0; i < in.size(); i += 4) {
      uchar4 x = *reinterpret_cast<const uchar4 *>(&in[i]);
      uchar4 y = x + uchar4{1, 2, 3, 4};
      *reinterpret_cast<uchar4 *>(&out[i]) = y;
      total += __builtin_ipu_popc(*reinterpret_cast<const unsigned *>(&in[i]));
    }
    *bits = total;
    return true;
  }
};
