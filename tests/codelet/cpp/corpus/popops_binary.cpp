// Element-wise operations of two operands; comparisons give bool; one broadcasts a scalar.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <algorithm>
#include <cmath>
#include <type_traits>

using namespace poplar;

namespace popops {
namespace expr {
enum class BinaryOpType { ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, LESS_THAN, EQUAL, ATAN2, SHIFT_LEFT, REMAINDER };
}

template <expr::BinaryOpType op, typename T> struct BinaryOutput { using type = T; };
template <typename T> struct BinaryOutput<expr::BinaryOpType::LESS_THAN, T> { using type = bool; };
template <typename T> struct BinaryOutput<expr::BinaryOpType::EQUAL, T> { using type = bool; };

template <expr::BinaryOpType op, typename T>
static inline typename BinaryOutput<op, T>::type apply(T a, T b) {
  using B = expr::BinaryOpType;
  if constexpr (op == B::ADD)
    return a + b;
  else if constexpr (op == B::SUBTRACT)
    return a - b;
  else if constexpr (op == B::MULTIPLY)
    return a * b;
  else if constexpr (op == B::DIVIDE)
    return a / b;
  else if constexpr (op == B::MAXIMUM)
    return std::max(a, b);
  else if constexpr (op == B::LESS_THAN)
    return a < b;
  else if constexpr (op == B::EQUAL)
    return a == b;
  else if constexpr (op == B::ATAN2)
    return std::atan2(float(a), float(b));
  else if constexpr (op == B::REMAINDER && std::is_integral<T>::value)
    return a % b;
  else if constexpr (op == B::REMAINDER)
    return std::fmod(float(a), float(b));
  else
    return a << b;
}

template <expr::BinaryOpType op, typename T>
class [[poplar::constraint("elem(*in2) != elem(*out)")]] BinaryOp1D : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in1;
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in2;
  Output<Vector<typename BinaryOutput<op, T>::type, VectorLayout::ONE_PTR, 8>> out;
  const unsigned short numElems;

  bool compute(unsigned wid) {
    for (unsigned j = wid; j < numElems; j += numWorkers())
      out[j] = apply<op, T>(in1[j], in2[j]);
    return true;
  }
};

template <expr::BinaryOpType op, typename T> class BroadcastScalar2DInPlace : public Vertex {
public:
  Vector<InOut<Vector<T, VectorLayout::SPAN, 8>>> data;
  Input<T> B;

  bool compute() {
    for (unsigned i = 0; i < data.size(); i++)
      std::transform(data[i].begin(), data[i].end(), data[i].begin(), [&](T v) { return apply<op, T>(v, *B); });
    return true;
  }
};

#define INSTANTIATE(op)                                                                                                \
  template class BinaryOp1D<expr::BinaryOpType::op, float>;                                                            \
  template class BinaryOp1D<expr::BinaryOpType::op, half>;                                                             \
  template class BinaryOp1D<expr::BinaryOpType::op, int>;
INSTANTIATE(ADD)
INSTANTIATE(SUBTRACT)
INSTANTIATE(MULTIPLY)
INSTANTIATE(DIVIDE)
INSTANTIATE(MAXIMUM)
INSTANTIATE(LESS_THAN)
INSTANTIATE(EQUAL)
INSTANTIATE(REMAINDER)
template class BinaryOp1D<expr::BinaryOpType::ATAN2, float>;
template class BinaryOp1D<expr::BinaryOpType::SHIFT_LEFT, int>;
template class BroadcastScalar2DInPlace<expr::BinaryOpType::MULTIPLY, float>;
template class BroadcastScalar2DInPlace<expr::BinaryOpType::MULTIPLY, half>;
template class BroadcastScalar2DInPlace<expr::BinaryOpType::ADD, float>;

} // namespace popops
