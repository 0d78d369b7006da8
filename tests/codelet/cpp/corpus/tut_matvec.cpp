// Rows of a matrix times a vector, one row for each vertex, then a reduction of partials.
#include <poplar/Vertex.hpp>
using namespace poplar;

class DotProductVertex : public Vertex {
public:
  Input<Vector<float>> a;
  Input<Vector<float>> b;
  Output<float> out;

  bool compute() {
    float sum = 0;
    for (unsigned i = 0; i < a.size(); ++i)
      sum += a[i] * b[i];
    *out = sum;
    return true;
  }
};

class BlockVertex : public Vertex {
public:
  Vector<Input<Vector<float>>> rows;
  Input<Vector<float, VectorLayout::ONE_PTR>> x;
  Output<Vector<float>> partial;

  bool compute() {
    for (std::size_t r = 0; r != rows.size(); ++r) {
      float acc{};
      for (std::size_t c = 0; c != rows[r].size(); ++c)
        acc += rows[r][c] * x[c];
      partial[r] = acc;
    }
    return true;
  }
};

class ReduceVertex : public Vertex {
public:
  Vector<Input<float>> in;
  Output<float> out;

  bool compute() {
    float sum = 0;
    for (unsigned i = 0; i < in.size(); ++i)
      sum += in[i];
    *out = sum;
    return true;
  }
};
