// A token from logits: temperature, soft-max, nucleus, and a draw given from outside.
#include <poplar/Vertex.hpp>
#include <poplar/HalfFloat.hpp>
#include <algorithm>
#include <cmath>

using namespace poplar;

template <typename T> class SampleToken : public Vertex {
public:
  Input<Vector<T>> logits;
  InOut<Vector<float, VectorLayout::ONE_PTR>> probabilities;
  Output<unsigned> token;
  const float temperature, uniform;

  bool compute() {
    const unsigned n = logits.size();
    float top = float(logits[0]);
    for (unsigned i = 1; i < n; ++i)
      top = std::max(top, float(logits[i]));
    float sum = 0;
    for (unsigned i = 0; i < n; ++i)
      sum += probabilities[i] = std::exp((float(logits[i]) - top) / temperature);
    float left = uniform * sum;
    unsigned chosen = n - 1;
    for (unsigned i = 0; i < n; ++i) {
      left -= probabilities[i];
      if (left <= 0) {
        chosen = i;
        break;
      }
    }
    *token = chosen;
    return true;
  }
};

template class SampleToken<float>;
template class SampleToken<half>;

class AliasDraw : public Vertex {
public:
  Input<Vector<float>> threshold;
  Input<Vector<unsigned short, VectorLayout::ONE_PTR>> alias;
  Input<Vector<unsigned>> bits;
  Output<Vector<unsigned short>> drawn;
  bool compute() {
    const unsigned n = threshold.size();
    for (unsigned i = 0; i < bits.size(); ++i) {
      const unsigned column = (bits[i] >> 16) * n >> 16;
      const float u = (bits[i] & 0xffff) * (1.0f / 65536);
      drawn[i] = u < threshold[column] ? column : alias[column];
    }
    return true;
  }
};
