// Gates of a recurrent cell with the tile's sigmoid and tanh.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>
#include <cmath>

using namespace poplar;

namespace {
inline float sigmoid(float x) {
#ifdef __IPU__
  return __builtin_ipu_sigmoid(x);
#else
  return 1.0f / (1.0f + std::exp(-x));
#endif
}
} // namespace

class LstmGates : public Vertex {
public:
  Vector<Input<Vector<float, VectorLayout::ONE_PTR>>, VectorLayout::ONE_PTR> gates; // forget, input, candidate, output
  InOut<Vector<float>> cell;
  Output<Vector<float>> hidden;
  bool compute() {
    enum Gate { FORGET, INPUT, CANDIDATE, OUTPUT };
    for (unsigned i = 0; i < cell.size(); ++i) {
      const float f = sigmoid(gates[FORGET][i]), in = sigmoid(gates[INPUT][i]);
      cell[i] = f * cell[i] + in * std::tanh(gates[CANDIDATE][i]);
      hidden[i] = sigmoid(gates[OUTPUT][i]) * std::tanh(cell[i]);
    }
    return true;
  }
};
