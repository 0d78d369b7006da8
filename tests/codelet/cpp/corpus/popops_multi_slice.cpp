// Rows of a table by index, and updates that add.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;
using namespace std;

namespace popops {

template <typename Type> class MultiSlice : public Vertex {
public:
  Input<Vector<unsigned>> offsets;
  Input<Vector<Type, VectorLayout::ONE_PTR, 4>> baseT;
  Output<Vector<Type, VectorLayout::ONE_PTR, 4>> subT;
  const unsigned baseOffset;
  const unsigned numBaseElements;
  const unsigned short regionSize;

  bool compute() {
    for (unsigned o = 0; o != offsets.size(); ++o) {
      auto baseIdx = offsets[o];
      if (baseIdx < baseOffset || baseIdx >= baseOffset + numBaseElements)
        continue; // another vertex has this row
      baseIdx -= baseOffset;
      for (unsigned e = 0; e != regionSize; ++e)
        subT[o * regionSize + e] = baseT[baseIdx * regionSize + e];
    }
    return true;
  }
};

template <typename Type, bool subwordWritesSupported> class MultiUpdateAdd : public Vertex {
public:
  Input<Vector<unsigned>> offsets;
  InOut<Vector<Type, VectorLayout::ONE_PTR, 4>> baseT;
  Input<Vector<Type, VectorLayout::ONE_PTR, 4>> subT;
  const Input<Type> scale;
  const unsigned numBaseElements;
  const unsigned short regionSize;

  bool compute() {
    for (unsigned o = 0; o != offsets.size(); ++o) {
      if (offsets[o] >= numBaseElements)
        continue;
      for (unsigned e = 0; e != regionSize; ++e) {
        const float added = float(*scale) * float(subT[o * regionSize + e]);
        baseT[offsets[o] * regionSize + e] += Type(added);
      }
    }
    return true;
  }
};

template class MultiSlice<float>;
template class MultiSlice<half>;
template class MultiSlice<int>;
template class MultiSlice<unsigned>;
template class MultiSlice<bool>;
template class MultiSlice<unsigned long long>;
template class MultiUpdateAdd<float, false>;
template class MultiUpdateAdd<half, true>;
template class MultiUpdateAdd<half, false>;

} // namespace popops
