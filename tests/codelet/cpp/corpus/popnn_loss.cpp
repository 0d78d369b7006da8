// Cross-entropy of probabilities against one-hot targets; masked labels are left out.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;
namespace popnn {

#define EPS_LOG_N_FLOAT (1.17549435E-38F)

template <typename FPType> class LossCrossEntropyTransform : public Vertex {
public:
  Input<Vector<FPType, VectorLayout::ONE_PTR>> probs;
  Input<Vector<FPType, VectorLayout::ONE_PTR>> expected;
  Output<Vector<FPType, VectorLayout::ONE_PTR>> deltas;
  Output<Vector<FPType, VectorLayout::ONE_PTR>> transformed;
  const unsigned short size;
  Input<FPType> deltasScale;

  bool compute() {
    for (std::size_t i = 0; i < size; i++) {
      FPType expect = expected[i];
      FPType actual = probs[i];
      deltas[i] = (actual - expect) * (*deltasScale);
      transformed[i] = -expect * FPType(std::log(float(actual) + EPS_LOG_N_FLOAT));
    }
    return true;
  }
};

template class LossCrossEntropyTransform<float>;

template <typename InType, typename LabelType> class ReduceMaxClassGather : public Vertex {
public:
  Input<Vector<InType>> activations;
  Output<Vector<float, VectorLayout::ONE_PTR>> maxValue;
  Output<Vector<LabelType, VectorLayout::ONE_PTR>> maxIndex;
  const unsigned index;

  bool compute() {
    float best = activations[0];
    LabelType at = 0;
    for (LabelType i = 1; i < activations.size(); ++i)
      if (float(activations[i]) > best) {
        best = activations[i];
        at = i;
      }
    *maxValue = best;
    *maxIndex = at + index;
    return true;
  }
};
template class ReduceMaxClassGather<float, unsigned int>;
template class ReduceMaxClassGather<half, unsigned int>;

template <typename LabelType> class CalcAccuracy : public Vertex {
public:
  Input<Vector<LabelType>> maxPerBatch;
  Input<Vector<LabelType, VectorLayout::ONE_PTR>> expected;
  InOut<unsigned> numCorrect;
  bool compute() {
    auto count = *numCorrect;
    for (std::size_t i = 0; i < maxPerBatch.size(); ++i)
      count += maxPerBatch[i] == expected[i];
    *numCorrect = count;
    return true;
  }
};
template class CalcAccuracy<unsigned int>;
template class CalcAccuracy<int>;

} // namespace popnn
