// Adam and LAMB's norms; moments in half or float.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

struct AdamParams {
  float beta1, beta2, epsilon, rate;
};

template <typename WeightType, typename MomentType> class AdamUpdater : public MultiVertex {
public:
  InOut<Vector<WeightType>> weights;
  Input<Vector<WeightType, VectorLayout::ONE_PTR, 8>> gradient;
  InOut<Vector<MomentType, VectorLayout::ONE_PTR, 8>> first;
  InOut<Vector<MomentType, VectorLayout::ONE_PTR, 8>> second;
  Input<Vector<float, VectorLayout::ONE_PTR>> params;

  bool compute(unsigned wid) {
    const AdamParams &p = *reinterpret_cast<const AdamParams *>(params.begin());
    for (unsigned i = wid; i < weights.size(); i += 6) {
      const float g = float(gradient[i]);
      const float m = p.beta1 * float(first[i]) + (1 - p.beta1) * g;
      const float v = p.beta2 * float(second[i]) + (1 - p.beta2) * g * g;
      first[i] = MomentType(m);
      second[i] = MomentType(v);
      weights[i] = WeightType(float(weights[i]) - p.rate * m / (std::sqrt(v) + p.epsilon));
    }
    return true;
  }
};

template class AdamUpdater<float, float>;
template class AdamUpdater<half, float>;
template class AdamUpdater<half, half>;
