// Blocks of a sparse matrix times a dense one; block sizes are template arguments.
#include "poplibs_support/ExternalCodelet.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

template <typename FPType, typename AccumType, std::size_t blockRows, std::size_t blockCols>
class [[poplar::constraint("elem(*dense) != elem(*out)")]] BlockTimesDense : public Vertex {
public:
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> blocks;
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> dense;
  InOut<Vector<AccumType, VectorLayout::ONE_PTR, 8>> out;
  Input<Vector<unsigned short>> coordinates;
  const unsigned width;

  bool compute() {
    for (unsigned b = 0; b < coordinates.size() / 2; ++b) {
      const FPType *block = &blocks[b * blockRows * blockCols];
      const unsigned row = coordinates[2 * b] * blockRows, col = coordinates[2 * b + 1] * blockCols;
      for (unsigned z = 0; z < width; ++z) {
        AccumType sums[blockRows] = {};
        for (std::size_t c = 0; c < blockCols; ++c)
          for (std::size_t r = 0; r < blockRows; ++r)
            sums[r] += AccumType(block[r * blockCols + c]) * AccumType(dense[(col + c) * width + z]);
        for (std::size_t r = 0; r < blockRows; ++r)
          out[(row + r) * width + z] += sums[r];
      }
    }
    return true;
  }
};

template class BlockTimesDense<half, float, 4, 4>;
template class BlockTimesDense<half, float, 8, 8>;
template class BlockTimesDense<float, float, 4, 4>;
template class BlockTimesDense<float, float, 8, 8>;
