// Two and four elements at a time, the pointer cast that most fast codelets begin with.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <poplar/VectorTypes.hpp>
#ifdef __IPU__
#include <ipu_memory_intrinsics>
#include <ipu_vector_math>
#endif

using namespace poplar;

static constexpr auto ONE_PTR = VectorLayout::ONE_PTR;

class AddFloat2 : public Vertex {
public:
  Input<Vector<float, ONE_PTR, 8>> a;
  Input<Vector<float, ONE_PTR, 8>> b;
  Output<Vector<float, ONE_PTR, 8>> out;
  const unsigned pairs;

  bool compute() {
    const float2 *pa = reinterpret_cast<const float2 *>(&a[0]);
    float2 *pb = reinterpret_cast<float2 *>(&b[0]);
    float2 *po = reinterpret_cast<float2 *>(&out[0]);
    for (unsigned i = 0; i < pairs; ++i)
      po[i] = pa[i] + pb[i];
    return true;
  }
};

class ScaleHalf4 : public Vertex {
public:
  InOut<Vector<half, VectorLayout::SPAN, 8>> data;
  half scale;

  bool compute() {
    half4 *v = reinterpret_cast<half4 *>(data.begin());
    const half4 s = {scale, scale, scale, scale};
    const unsigned n = data.size() / 4;
    for (unsigned i = 0; i < n; ++i)
      v[i] *= s;
    for (unsigned i = 4 * n; i < data.size(); ++i)
      data[i] *= scale;
    return true;
  }
};
