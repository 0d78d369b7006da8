// Small dense solvers: Cholesky of a tile's block, then triangular solves.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

namespace poplin {

template <typename FloatType, bool lower> class Cholesky : public Vertex {
public:
  Input<Vector<FloatType>> in;
  Output<Vector<FloatType>> out;
  const unsigned dim;

  unsigned at(unsigned row, unsigned col) const { return lower ? row * dim + col : col * dim + row; }

  bool compute() {
    for (unsigned i = 0; i < dim * dim; ++i)
      out[i] = 0;
    for (unsigned col = 0; col < dim; ++col) {
      FloatType diagonal = in[at(col, col)];
      for (unsigned k = 0; k < col; ++k)
        diagonal -= out[at(col, k)] * out[at(col, k)];
      const FloatType root = std::sqrt(diagonal);
      out[at(col, col)] = root;
      for (unsigned row = col + 1; row < dim; ++row) {
        FloatType s = in[at(row, col)];
        for (unsigned k = 0; k < col; ++k)
          s -= out[at(row, k)] * out[at(col, k)];
        out[at(row, col)] = s / root;
      }
    }
    return true;
  }
};

template class Cholesky<float, true>;
template class Cholesky<float, false>;

class ForwardSubstitution : public Vertex {
public:
  Input<Vector<float>> l;
  InOut<Vector<float>> x;
  const bool unitDiagonal;
  bool compute() {
    const unsigned n = x.size();
    for (unsigned i = 0; i < n; ++i) {
      float s = x[i];
      for (unsigned k = 0; k < i; ++k)
        s -= l[i * n + k] * x[k];
      x[i] = unitDiagonal ? s : s / l[i * n + i];
    }
    return true;
  }
};

} // namespace poplin
