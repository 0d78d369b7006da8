// Edit distance of many pairs, bytes packed with their lengths and offsets.
#include <poplar/Vertex.hpp>
#include <cstddef>

template <std::size_t MaxLength> class EditDistance : public poplar::MultiVertex {
public:
  poplar::Input<poplar::Vector<unsigned char, poplar::VectorLayout::ONE_PTR>> sequences;
  poplar::Input<poplar::Vector<unsigned short, poplar::VectorLayout::ONE_PTR>> offsets; // pairs + ends
  poplar::Output<poplar::Vector<int, poplar::VectorLayout::ONE_PTR>> distance;
  const unsigned numPairs;

  bool compute(unsigned worker) {
    for (unsigned p = worker; p < numPairs; p += numWorkers()) {
      const unsigned char *s = &sequences[offsets[2 * p]], *t = &sequences[offsets[2 * p + 1]];
      const std::size_t ns = offsets[2 * p + 1] - offsets[2 * p], nt = offsets[2 * p + 2] - offsets[2 * p + 1];
      unsigned char row[MaxLength + 1];
      for (std::size_t j = 0; j <= nt; ++j)
        row[j] = j;
      for (std::size_t i = 0; i < ns; ++i) {
        unsigned char corner = i;
        row[0] = i + 1;
        for (std::size_t j = 0; j < nt; ++j) {
          const unsigned char change = corner + (s[i] != t[j]);
          corner = row[j + 1];
          unsigned char least = change < row[j] + 1 ? change : row[j] + 1;
          row[j + 1] = least < corner + 1 ? least : corner + 1;
        }
      }
      distance[p] = row[nt];
    }
    return true;
  }
};

template class EditDistance<32>;
template class EditDistance<64>;
