// Reductions of the library's kind: operation as a class, partials of another type, three memory patterns.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <poplar/AvailableVTypes.h>
#include "poplibs_support/TileConstants.hpp"
#include <cmath>
#include <limits>
#include <type_traits>

using namespace poplar;

namespace popops {

struct ReduceAdd {
  template <typename T> static T init() { return T(0); }
  template <typename T, typename U> static void update(T &acc, U v) { acc += static_cast<T>(v); }
};
struct ReduceMax {
  template <typename T> static T init() { return std::numeric_limits<T>::lowest(); }
  template <typename T, typename U> static void update(T &acc, U v) {
    if (acc < static_cast<T>(v))
      acc = static_cast<T>(v);
  }
};
struct ReduceSquareAdd {
  template <typename T> static T init() { return T(0); }
  template <typename T, typename U> static void update(T &acc, U v) {
    const auto wide = static_cast<T>(v);
    acc += wide * wide;
  }
};

template <typename ReduceOp, typename PartialsType, typename OutType, bool isUpdate>
class StridedReduce : public Vertex {
public:
  Input<Vector<PartialsType, VectorLayout::ONE_PTR, 8, false>> partials;
  typename std::conditional<isUpdate, InOut<Vector<OutType, VectorLayout::ONE_PTR, 8>>,
                            Output<Vector<OutType, VectorLayout::ONE_PTR, 8>>>::type out;
  using ShortType = unsigned short;
  const ShortType numOutputs;
  const ShortType numPartials;
  const ShortType partialsWidth;

  bool compute() {
    for (unsigned o = 0; o < numOutputs; ++o) {
      const PartialsType *p = &partials[o];
      auto acc = ReduceOp::template init<OutType>();
      for (unsigned i = 0; i < numPartials; ++i, p += partialsWidth)
        ReduceOp::update(acc, *p);
      if (isUpdate)
        ReduceOp::update(acc, out[o]);
      out[o] = acc;
    }
    return true;
  }
};

template <typename ReduceOp, typename PartialsType, typename OutType> class SingleOutputReduce : public Vertex {
public:
  Input<Vector<PartialsType, VectorLayout::SPAN, 8>> partials;
  Output<OutType> out;
  Input<float> k;
  bool compute() {
    auto acc = ReduceOp::template init<OutType>();
    for (auto p : partials)
      ReduceOp::update(acc, p);
    *out = static_cast<OutType>(static_cast<float>(acc) * *k);
    return true;
  }
};

#define FOR_OP(op)                                                                                                     \
  template class StridedReduce<op, float, float, false>;                                                               \
  template class StridedReduce<op, float, float, true>;                                                                \
  template class StridedReduce<op, half, float, false>;                                                                \
  template class StridedReduce<op, half, float, true>;                                                                 \
  template class SingleOutputReduce<op, half, float>;                                                                  \
  template class SingleOutputReduce<op, float, float>;
FOR_OP(ReduceAdd)
FOR_OP(ReduceMax)
FOR_OP(ReduceSquareAdd)
template class StridedReduce<ReduceAdd, int, int, false>;

} // namespace popops
