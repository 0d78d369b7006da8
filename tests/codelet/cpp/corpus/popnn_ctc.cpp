// One step of CTC's alpha recursion in log space.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

namespace popnn {

template <typename T> static inline T logAdd(T a, T b) {
  const T high = a > b ? a : b, low = a > b ? b : a;
  return high + std::log(1 + std::exp(low - high));
}

template <typename InType, typename SymbolType> class CTCAlpha : public Vertex {
public:
  Input<Vector<InType>> probabilities; // of each class, at this time, logarithms
  Input<Vector<SymbolType>> label;
  InOut<Vector<InType>> alpha; // 2 * label + 1 states
  Output<Vector<InType>> next;
  const SymbolType blankClass;

  bool compute() {
    const unsigned states = 2 * label.size() + 1;
    for (unsigned s = 0; s < states; ++s) {
      const bool blank = (s % 2) == 0;
      const SymbolType symbol = blank ? blankClass : label[s / 2];
      InType sum = alpha[s];
      if (s >= 1)
        sum = logAdd(sum, alpha[s - 1]);
      if (!blank && s >= 2 && symbol != label[s / 2 - 1])
        sum = logAdd(sum, alpha[s - 2]);
      next[s] = sum + probabilities[symbol];
    }
    return true;
  }
};

template class CTCAlpha<float, unsigned short>;
template class CTCAlpha<float, unsigned int>;

} // namespace popnn
