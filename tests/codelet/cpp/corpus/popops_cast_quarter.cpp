// Eight-bit floats: the metadata says format and scale at run time.
#include <poplar/HalfFloat.hpp>
#include <poplar/QuarterFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace popops {

class CastFromQuarter : public Vertex {
public:
  Input<Vector<quarter, VectorLayout::ONE_PTR, 8>> src;
  Input<Vector<unsigned char, VectorLayout::ONE_PTR>> metadata;
  Output<Vector<half, VectorLayout::SPAN, 8>> dst;

  bool compute() {
    const quarter_metadata meta{metadata[0]};
    for (unsigned i = 0; i < dst.size(); ++i)
      dst[i] = static_cast<half>(toFloat(src[i], meta));
    return true;
  }
};

// scale and format in a plain byte, decoded by hand: what codes did before there was a type
class DecodeF143 : public Vertex {
public:
  Input<Vector<unsigned char>> src;
  Output<Vector<float>> dst;
  int scale;

  bool compute() {
    for (unsigned i = 0; i < src.size(); ++i) {
      const unsigned bits = src[i];
      const int exponent = (bits >> 3) & 15;
      const float mantissa = bits & 7;
      float v = exponent ? (1.0f + mantissa / 8.0f) * __builtin_ldexpf(1.0f, exponent - 8)
                         : mantissa / 8.0f * __builtin_ldexpf(1.0f, -7);
      v = __builtin_ldexpf(v, scale);
      dst[i] = bits & 128 ? -v : v;
    }
    return true;
  }
};

} // namespace popops
