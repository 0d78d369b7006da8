// Labels to rows of zeros with a one; ignored labels are all ones in their type.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

constexpr inline unsigned MASKED_LABEL_CODE = 0xFFFFFFFFU;

namespace popops {

template <typename IndexType, typename OutType> class EncodeOneHot : public Vertex {
public:
  EncodeOneHot();

  Input<Vector<IndexType>> indices;
  Output<Vector<OutType, VectorLayout::ONE_PTR, 8>> out;
  const unsigned outLength;
  const unsigned sliceLength;
  const unsigned offset;

  bool compute() {
    for (unsigned i = 0; i < outLength; ++i)
      out[i] = 0;
    for (unsigned i = 0; i < indices.size(); ++i) {
      if (indices[i] == MASKED_LABEL_CODE)
        continue;
      const auto index = indices[i] - offset;
      if (index < sliceLength)
        out[i * sliceLength + index] = 1;
    }
    return true;
  }
};

template class EncodeOneHot<unsigned int, float>;
template class EncodeOneHot<unsigned int, half>;
template class EncodeOneHot<unsigned int, unsigned int>;
template class EncodeOneHot<unsigned int, int>;
template class EncodeOneHot<int, float>;

} // namespace popops
