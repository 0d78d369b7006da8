// Forward and backward of x^3, as in a custom operation.
#include <cmath>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

template <typename FPType> class CubeFwd : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<FPType>> input;
  poplar::Output<poplar::Vector<FPType>> output;

  bool compute() {
    for (unsigned i = 0; i < input.size(); i++)
      output[i] = std::pow(static_cast<float>(input[i]), 3);
    return true;
  }
};

template <typename FPType> class CubeBwd : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<FPType>> input;
  poplar::Input<poplar::Vector<FPType>> grad;
  poplar::Output<poplar::Vector<FPType>> output;

  bool compute() {
    for (unsigned i = 0; i < input.size(); i++)
      output[i] = grad[i] * FPType(3) * input[i] * input[i];
    return true;
  }
};

template class CubeFwd<float>;
template class CubeFwd<half>;
template class CubeBwd<float>;
template class CubeBwd<half>;
