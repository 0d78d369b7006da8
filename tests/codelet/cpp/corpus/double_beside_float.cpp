// A field of 64 bits in one class; doubles in arithmetic in another, which are floats on the tile.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

class DoubleField : public Vertex {
public:
  Input<Vector<double>> x;
  Output<float> out;
  bool compute() {
    *out = x[0];
    return true;
  }
};

class Integrate : public Vertex {
public:
  Output<double_t> unused;
  bool compute() { return true; }
};

class Simpson : public Vertex {
public:
  Input<Vector<float>> f;
  Output<float> integral;
  float h;
  bool compute() {
    double sum = f[0] + f[f.size() - 1];
    for (unsigned i = 1; i + 1 < f.size(); ++i)
      sum += (i % 2 ? 4.0 : 2.0) * f[i];
    *integral = sum * h / 3.0;
    return true;
  }
};

class Distances : public Vertex {
public:
  Input<Vector<int>> x, y;
  Output<Vector<float>> d;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      d[i] = std::sqrt(x[i] * x[i] + y[i] * y[i]) + std::pow(0.1 * x[i], 2);
    return true;
  }
};
