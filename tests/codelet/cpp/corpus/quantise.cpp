// Symmetric 8-bit and packed 4-bit quantisation with a scale for each group.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>

class QuantiseInt8 : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> in;
  poplar::Output<poplar::Vector<int8_t>> out;
  poplar::Output<float> scale;
  bool compute() {
    float most = 0;
    for (float v : in)
      most = std::max(most, std::fabs(v));
    const float s = most > 0 ? most / 127 : 1;
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = static_cast<int8_t>(std::max(-127.0f, std::min(127.0f, std::rint(in[i] / s))));
    *scale = s;
    return true;
  }
};

template <unsigned GroupSize> class DequantiseInt4 : public poplar::MultiVertex {
public:
  poplar::Input<poplar::Vector<uint8_t, poplar::VectorLayout::ONE_PTR, 4>> packed;
  poplar::Input<poplar::Vector<half, poplar::VectorLayout::ONE_PTR>> scales;
  poplar::Output<poplar::Vector<half, poplar::VectorLayout::ONE_PTR, 4>> out;
  const unsigned numGroups;

  bool compute(unsigned wid) {
    for (unsigned g = wid; g < numGroups; g += numWorkers())
      for (unsigned i = 0; i < GroupSize; ++i) {
        const uint8_t byte = packed[(g * GroupSize + i) / 2];
        const int code = i % 2 ? byte >> 4 : byte & 15;
        out[g * GroupSize + i] = half(code - 8) * scales[g];
      }
    return true;
  }
};
template class DequantiseInt4<16>;
template class DequantiseInt4<32u>;
