// Vertices that tests of own primitives call.
#include <poplar/Vertex.hpp>
using namespace poplar;

template <typename T>
class ScaleTwice : public MultiVertex {
 public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> x;
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> factors;
  Output<Vector<T, VectorLayout::SPAN, 8>> once;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> twice;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> tmp;
  float by;

  bool compute(unsigned worker) {
    for (unsigned i = worker; i < once.size(); i += 6) {
      tmp[i] = x[i] * factors[i];
      once[i] = tmp[i];
      twice[i] = T(by) * tmp[i];
    }
    return true;
  }
};
template class ScaleTwice<float>;
template class ScaleTwice<half>;

class AddInPlace : public Vertex {
 public:
  InOut<Vector<float>> x;
  unsigned n;

  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i) x[i] += float(n);
    return true;
  }
};

class RowSums : public Vertex {
 public:
  Vector<Input<Vector<float>>> x;
  Output<Vector<float>> sums;

  bool compute() {
    for (unsigned r = 0; r < x.size(); ++r) {
      float sum = 0;
      for (unsigned i = 0; i < x[r].size(); ++i) sum += x[r][i];
      sums[r] = sum;
    }
    return true;
  }
};

class CountUp : public Vertex {
 public:
  Output<Vector<int>> out;
  int start;

  bool compute() {
    for (unsigned i = 0; i < out.size(); ++i) out[i] = start + int(i);
    return true;
  }
};
