// The first codelet of every tutorial: a sum over a slice.
#include <poplar/Vertex.hpp>

class SumVertex : public poplar::Vertex {
public:
  // Fields
  poplar::Input<poplar::Vector<float>> in;
  poplar::Output<float> out;

  // Compute function
  bool compute() {
    *out = 0;
    for (const auto &v : in) {
      *out += v;
    }
    return true;
  }
};

class ScaledSum : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> in;
  poplar::Input<float> factor;
  poplar::Output<float> out;

  auto compute() -> bool {
    float sum = 0.0;
    for (auto i = 0u; i < in.size(); i++)
      sum += in[i];
    *out = sum * factor;
    return true;
  }
};
