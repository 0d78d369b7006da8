// Casts between all pairs of types, by a macro for each source type.
#include <poplar/HalfFloat.hpp>
#include <poplar/QuarterFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace popops {

template <typename SrcType, typename DstType> class Cast1D : public MultiVertex {
public:
  Input<Vector<SrcType, VectorLayout::ONE_PTR, 8>> src;
  Output<Vector<DstType, VectorLayout::ONE_PTR, 8>> dst;
  const unsigned numElems;

  bool compute(unsigned wid) {
    for (unsigned i = wid; i < numElems; i += numWorkers())
      dst[i] = static_cast<DstType>(src[i]);
    return true;
  }
};

template <typename SrcType, typename DstType> class Cast2D : public Vertex {
public:
  Vector<Input<Vector<SrcType, VectorLayout::ONE_PTR, 8>>, VectorLayout::ONE_PTR> src;
  Vector<Output<Vector<DstType, VectorLayout::SPAN, 4>>> dst;

  bool compute() {
    const unsigned limI = dst.size();
    for (unsigned i = 0; i != limI; ++i) {
      auto const &refSrc = src[i];
      auto const &refDst = dst[i];
      for (unsigned j = 0; j != refDst.size(); ++j)
        refDst[j] = static_cast<DstType>(refSrc[j]);
    }
    return true;
  }
};

#define INSTANTIATE_FROM(S)                                                                                            \
  template class Cast1D<S, float>;                                                                                     \
  template class Cast1D<S, half>;                                                                                      \
  template class Cast1D<S, int>;                                                                                       \
  template class Cast1D<S, unsigned>;                                                                                  \
  template class Cast1D<S, unsigned short>;                                                                            \
  template class Cast1D<S, short>;                                                                                     \
  template class Cast1D<S, bool>;                                                                                      \
  template class Cast1D<S, char>;                                                                                      \
  template class Cast1D<S, signed char>;                                                                               \
  template class Cast1D<S, unsigned char>;

INSTANTIATE_FROM(float)
INSTANTIATE_FROM(half)
INSTANTIATE_FROM(int)
INSTANTIATE_FROM(unsigned)
INSTANTIATE_FROM(unsigned short)
INSTANTIATE_FROM(bool)
INSTANTIATE_FROM(unsigned char)
template class Cast1D<unsigned long long, unsigned>;
template class Cast1D<long long, int>;
template class Cast2D<float, half>;
template class Cast2D<half, float>;

} // namespace popops
