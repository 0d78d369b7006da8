// Sparse times dense with meta-information interleaved, walked by a pointer.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace popsparse {

template <typename FPType, typename AccumType> class SparseDenseElementWise : public Vertex {
public:
  InOut<Vector<AccumType, VectorLayout::ONE_PTR, 8>> q;
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> r; // non-zeros
  Input<Vector<FPType, VectorLayout::ONE_PTR, 8>> s; // dense, [y][z]
  Input<Vector<unsigned short, VectorLayout::ONE_PTR>> metaInfo;
  const unsigned short numZ;

  // rows, then for each: row of the output, number of columns, the columns
  struct RowHeader {
    unsigned short row;
    unsigned short num;
  };

  bool compute() {
    const unsigned short *meta = &metaInfo[0];
    const unsigned rows = *meta++;
    const FPType *nz = &r[0];
    for (unsigned i = 0; i < rows; ++i) {
      const auto *header = reinterpret_cast<const RowHeader *>(meta);
      const unsigned short *columns = meta + sizeof(RowHeader) / sizeof(unsigned short);
      for (unsigned c = 0; c < header->num; ++c, ++nz)
        for (unsigned z = 0; z < numZ; ++z)
          q[header->row * numZ + z] += AccumType(*nz * s[columns[c] * numZ + z]);
      meta = columns + header->num;
    }
    return true;
  }
};

template class SparseDenseElementWise<float, float>;
template class SparseDenseElementWise<half, float>;

} // namespace popsparse
