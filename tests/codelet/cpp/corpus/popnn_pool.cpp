// Pooling along a row of blocks of channels: starts, lengths and strides in tables.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <algorithm>
#include <limits>

using namespace poplar;

namespace popnn {

enum class PoolingType { MAX, AVG, SUM };

template <typename FPType, PoolingType kind> class Pooling : public Vertex {
public:
  Output<Vector<FPType, VectorLayout::ONE_PTR, 8>> out;
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> in;
  Input<Vector<unsigned short>> starts; // for each position of the output: begin, end
  const unsigned short chans;
  const FPType scale;

  static FPType identity() {
    return kind == PoolingType::MAX ? std::numeric_limits<FPType>::lowest() : FPType(0);
  }

  bool compute() {
    for (unsigned p = 0; 2 * p < starts.size(); ++p) {
      for (unsigned c = 0; c < chans; ++c) {
        FPType acc = identity();
        for (unsigned i = starts[2 * p]; i < starts[2 * p + 1]; ++i) {
          const FPType v = in[i * chans + c];
          acc = kind == PoolingType::MAX ? std::max(acc, v) : acc + v;
        }
        out[p * chans + c] = kind == PoolingType::AVG ? acc * scale : acc;
      }
    }
    return true;
  }
};

template class Pooling<float, PoolingType::MAX>;
template class Pooling<float, PoolingType::AVG>;
template class Pooling<float, PoolingType::SUM>;
template class Pooling<half, PoolingType::MAX>;
template class Pooling<half, PoolingType::SUM>;

} // namespace popnn
