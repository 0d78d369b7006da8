// Rotary position embedding over pairs of a head.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <poplar/VectorTypes.hpp>

using namespace poplar;

template <typename T> class RotaryEmbedding : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in;
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> sinCos;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  const unsigned short numPositions;
  const unsigned short headSize;
  const bool backward;

  bool compute(unsigned wid) {
    const unsigned pairs = headSize / 2;
    for (unsigned p = wid; p < numPositions; p += 6) {
      const float *sc = &sinCos[p * headSize];
      for (unsigned i = 0; i < pairs; ++i) {
        const float s = backward ? -sc[2 * i] : sc[2 * i], c = sc[2 * i + 1];
        const float a = static_cast<float>(in[p * headSize + 2 * i]);
        const float b = static_cast<float>(in[p * headSize + 2 * i + 1]);
        out[p * headSize + 2 * i] = static_cast<T>(a * c - b * s);
        out[p * headSize + 2 * i + 1] = static_cast<T>(a * s + b * c);
      }
    }
    return true;
  }
};

template class RotaryEmbedding<float>;
template class RotaryEmbedding<half>;
