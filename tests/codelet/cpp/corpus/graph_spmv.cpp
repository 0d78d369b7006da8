// Sparse matrix times vector in three formats.
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace spmv {

constexpr int kEmpty = -1;

class Ell : public Vertex {
public:
  Input<Vector<float>> values; // [row][width]
  Input<Vector<int>> columns;
  Input<Vector<float, VectorLayout::ONE_PTR>> x;
  Output<Vector<float>> y;
  int width;
  bool compute() {
    for (unsigned r = 0; r < y.size(); ++r) {
      float s = 0;
      for (int k = 0; k < width; ++k) {
        const int c = columns[r * width + k];
        if (c == kEmpty)
          break;
        s += values[r * width + k] * x[c];
      }
      y[r] = s;
    }
    return true;
  }
};

class Coo : public Vertex {
public:
  Input<Vector<float>> values;
  Input<Vector<unsigned short>> rows, columns;
  Input<Vector<float, VectorLayout::ONE_PTR>> x;
  InOut<Vector<float, VectorLayout::ONE_PTR>> y;
  bool compute() {
    for (unsigned i = 0; i < values.size(); ++i)
      y[rows[i]] += values[i] * x[columns[i]];
    return true;
  }
};

class CsrWorkers : public MultiVertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> values;
  Input<Vector<unsigned, VectorLayout::ONE_PTR>> columns;
  Input<Vector<unsigned>> begin;
  Input<Vector<float, VectorLayout::ONE_PTR>> x;
  Output<Vector<float, VectorLayout::ONE_PTR>> y;
  bool compute(unsigned worker) {
    const auto rows = begin.size() - 1;
    for (auto r = worker; r < rows; r += numWorkers()) {
      float s = 0;
      for (auto k = begin[r]; k < begin[r + 1]; ++k)
        s += values[k] * x[columns[k]];
      y[r] = s;
    }
    return true;
  }
};

} // namespace spmv
