// Histogram against limits, absolute values or not.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

namespace popops {

template <typename InType, bool isAbsolute> class Histogram1D : public MultiVertex {
public:
  Input<Vector<InType, VectorLayout::ONE_PTR, 8>> data;
  Output<Vector<unsigned, VectorLayout::ONE_PTR>> histogram;
  Input<Vector<InType, VectorLayout::ONE_PTR>> limits;
  const unsigned dataCount;
  const unsigned short histogramCount;

  bool compute(unsigned wid) {
    if (wid != 0)
      return true;
    for (unsigned j = 0; j < histogramCount; ++j)
      histogram[j] = 0;
    for (unsigned i = 0; i < dataCount; ++i) {
      const auto d = isAbsolute ? static_cast<InType>(std::fabs(static_cast<float>(data[i]))) : data[i];
      unsigned bin = 0;
      while (bin < histogramCount - 1u && !(d < limits[bin]))
        ++bin;
      histogram[bin] += 1;
    }
    return true;
  }
};
template class Histogram1D<float, true>;
template class Histogram1D<float, false>;
template class Histogram1D<half, true>;
template class Histogram1D<half, false>;

} // namespace popops

class ByteHistogram : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<unsigned char, poplar::VectorLayout::SPAN>> bytes;
  poplar::InOut<poplar::Vector<unsigned, poplar::VectorLayout::ONE_PTR>> bins;
  bool compute() {
    for (auto b : bytes)
      ++bins[b >> 4];
    return true;
  }
};
