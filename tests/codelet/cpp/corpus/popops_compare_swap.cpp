// One step of a bitonic sort: pairs at a distance, direction by block, values carried with their keys.
#include "poplibs_support/TileConstants.hpp"
#include <poplar/Vertex.hpp>
#include <utility>

using namespace poplar;

namespace popops {

template <typename KeyType> class CompareAndSwapAtDistance : public MultiVertex {
public:
  InOut<Vector<KeyType, VectorLayout::ONE_PTR, 8>> keys;
  unsigned distance;
  unsigned block;
  unsigned size;

  bool compute(unsigned wid) {
    for (unsigned i = wid; i < size; i += CTXT_WORKERS) {
      const unsigned other = i ^ distance;
      if (other <= i)
        continue;
      const bool up = (i & block) == 0;
      if ((keys[i] > keys[other]) == up)
        std::swap(keys[i], keys[other]);
    }
    return true;
  }
};

template <typename KeyType, typename ValueType> class CompareAndSwapKeyVal : public Vertex {
public:
  InOut<Vector<KeyType>> keys;
  InOut<Vector<ValueType, VectorLayout::ONE_PTR>> values;

  bool compute() {
    const unsigned n = keys.size();
    for (unsigned phase = 0; phase < n; ++phase)
      for (unsigned i = phase & 1; i + 1 < n; i += 2)
        if (keys[i + 1] < keys[i]) {
          std::swap(keys[i], keys[i + 1]);
          std::swap(values[i], values[i + 1]);
        }
    return true;
  }
};

template class CompareAndSwapAtDistance<float>;
template class CompareAndSwapAtDistance<int>;
template class CompareAndSwapKeyVal<float, unsigned>;
template class CompareAndSwapKeyVal<int, float>;

} // namespace popops
