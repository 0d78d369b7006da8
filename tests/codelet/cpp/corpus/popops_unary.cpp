// One template for all element-wise operations, chosen by an enum of another header's kind.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include "poplibs_support/ExternalCodelet.hpp"
#include <cmath>
#include <cstdint>

using namespace poplar;

namespace popops {
namespace expr {
enum class UnaryOpType { ABSOLUTE, NEGATE, SQUARE, SQRT, EXPONENT, SIGNUM, BITWISE_NOT, LOGICAL_NOT, POPCOUNT };
} // namespace expr

using Op = expr::UnaryOpType;

template <Op op, typename T> struct UnaryFn {
  static T fn(T x);
};

#define DEFINE(op, body)                                                                                               \
  template <typename T> struct UnaryFn<Op::op, T> {                                                                    \
    static T fn(T x) { return body; }                                                                                  \
  }
DEFINE(ABSOLUTE, x < T(0) ? -x : x);
DEFINE(NEGATE, -x);
DEFINE(SQUARE, (x * x));
DEFINE(SQRT, T(std::sqrt(float(x))));
DEFINE(EXPONENT, T(std::exp(float(x))));
DEFINE(SIGNUM, (T(0) < x) - (x < T(0)));
DEFINE(BITWISE_NOT, ~x);
DEFINE(LOGICAL_NOT, !x);
DEFINE(POPCOUNT, __builtin_popcount(x));
#undef DEFINE

template <expr::UnaryOpType op, typename T> class UnaryOp1D : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  const unsigned short numElems;
  IS_EXTERNAL_CODELET(EXTERNAL_CODELET);

  bool compute(unsigned wid) {
    for (unsigned i = wid; i < numElems; i += numWorkers())
      out[i] = UnaryFn<op, T>::fn(in[i]);
    return true;
  }
};

template <expr::UnaryOpType op, typename T> class UnaryOp2DInPlace : public Vertex {
public:
  Vector<InOut<Vector<T, VectorLayout::SPAN, 8>>, VectorLayout::SPAN> inOut;

  bool compute() {
    for (auto &row : inOut)
      for (unsigned i = 0; i != row.size(); ++i)
        row[i] = UnaryFn<op, T>::fn(row[i]);
    return true;
  }
};

#define FLOATS(op)                                                                                                     \
  template class UnaryOp1D<expr::UnaryOpType::op, float>;                                                              \
  template class UnaryOp1D<expr::UnaryOpType::op, half>;                                                               \
  template class UnaryOp2DInPlace<expr::UnaryOpType::op, float>;                                                       \
  template class UnaryOp2DInPlace<expr::UnaryOpType::op, half>;
#define INTS(op)                                                                                                       \
  template class UnaryOp1D<expr::UnaryOpType::op, int>;                                                                \
  template class UnaryOp2DInPlace<expr::UnaryOpType::op, int>;

FLOATS(ABSOLUTE)
FLOATS(NEGATE)
FLOATS(SQUARE)
FLOATS(SQRT)
FLOATS(EXPONENT)
FLOATS(SIGNUM)
INTS(ABSOLUTE)
INTS(NEGATE)
INTS(SIGNUM)
INTS(BITWISE_NOT)
template class UnaryOp1D<expr::UnaryOpType::POPCOUNT, unsigned>;
template class UnaryOp1D<expr::UnaryOpType::BITWISE_NOT, unsigned short>;
template class UnaryOp1D<expr::UnaryOpType::LOGICAL_NOT, bool>;

} // namespace popops
