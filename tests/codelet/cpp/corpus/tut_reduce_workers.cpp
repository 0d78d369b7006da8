// A MultiVertex: six workers share one tile's data; partials, then one worker's total.
#include <poplar/Vertex.hpp>

using namespace poplar;

class PartialSums : public MultiVertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> data;
  Output<Vector<float, VectorLayout::ONE_PTR>> partials;
  unsigned size;

  bool compute(unsigned workerId) {
    const unsigned each = (size + numWorkers() - 1) / numWorkers();
    const unsigned begin = workerId * each;
    const unsigned end = begin + each < size ? begin + each : size;
    float sum = 0.f;
    for (unsigned i = begin; i < end; ++i)
      sum += data[i];
    partials[workerId] = sum;
    return true;
  }
};

class StridedScale : public MultiVertex {
public:
  InOut<Vector<float>> data;
  float by;

  bool compute(unsigned wid) {
    for (auto i = wid; i < data.size(); i += MultiVertex::numWorkers())
      data[i] *= by;
    return true;
  }
};
