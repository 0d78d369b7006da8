// Inclusive and exclusive scans of a tile, and the offsets of tiles added afterwards.
#include <poplar/Vertex.hpp>
#include <numeric>

using namespace poplar;

template <typename T, bool Exclusive = false> class Scan : public Vertex {
public:
  Input<Vector<T>> in;
  Output<Vector<T>> out;
  Output<T> total;
  bool compute() {
    T sum = 0;
    for (unsigned i = 0; i < in.size(); ++i) {
      if (Exclusive)
        out[i] = sum;
      sum += in[i];
      if (!Exclusive)
        out[i] = sum;
    }
    *total = sum;
    return true;
  }
};
template class Scan<int>;
template class Scan<int, true>;
template class Scan<float>;

class AddOffsets : public Vertex {
public:
  Vector<Input<int>> totals;
  InOut<Vector<int>> data;
  unsigned tile;
  bool compute() {
    int offset = 0;
    for (unsigned t = 0; t < tile; ++t)
      offset += *totals[t].operator->();
    for (auto &v : data)
      v += offset;
    return true;
  }
};
