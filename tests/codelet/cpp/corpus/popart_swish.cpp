// Swish and mish with the exponential of the tile's library.
#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>
#include <cmath>

class Swish : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> x;
  poplar::Output<poplar::Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      y[i] = x[i] / (1.0f + std::exp(-x[i]));
    return true;
  }
};

class Mish : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> x;
  poplar::Output<poplar::Vector<float>> y;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      y[i] = x[i] * std::tanh(std::log1p(std::exp(x[i])));
    return true;
  }
};
