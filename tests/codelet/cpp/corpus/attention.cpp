// Scaled dot-product attention of one query block, soft-max with a running maximum.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>
#include <limits>

using namespace poplar;

template <typename T, unsigned HeadSize> class FlashAttention : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> q, k, v;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  const unsigned queries, keys;
  const bool causal;

  bool compute(unsigned wid) {
    const float scale = 1.0f / std::sqrt(float(HeadSize));
    for (unsigned i = wid; i < queries; i += numWorkers()) {
      float acc[HeadSize] = {}, top = std::numeric_limits<float>::lowest(), sum = 0;
      const unsigned last = causal ? i + 1 : keys;
      for (unsigned j = 0; j < last; ++j) {
        float score = 0;
        for (unsigned d = 0; d < HeadSize; ++d)
          score += float(q[i * HeadSize + d]) * float(k[j * HeadSize + d]);
        score *= scale;
        const float higher = score > top ? score : top;
        const float old = std::exp(top - higher), now = std::exp(score - higher);
        sum = sum * old + now;
        for (unsigned d = 0; d < HeadSize; ++d)
          acc[d] = acc[d] * old + now * float(v[j * HeadSize + d]);
        top = higher;
      }
      for (unsigned d = 0; d < HeadSize; ++d)
        out[i * HeadSize + d] = T(acc[d] / sum);
    }
    return true;
  }
};

template class FlashAttention<float, 8>;
template class FlashAttention<half, 8>;
template class FlashAttention<half, 16>;
