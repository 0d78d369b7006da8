// Copyright (c) Graphcore
#include "poplar/AvailableVTypes.h"
#include "poplibs_support/ExternalCodelet.hpp"
#include "poplibs_support/TileConstants.hpp"
#include "popops/ExprOp.hpp"
#include "popops/codelets/elementwise.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <limits>
using namespace poplar;
namespace popops {
using BinaryOpType = popops::expr::BinaryOpType;
template <BinaryOpType op, typename T, typename A> struct BinaryOpFn {};
#define DEFINE(op, body) template <typename T> struct BinaryOpFn<op, T, void> { static T fn(T x, T y) { body } };
DEFINE(BinaryOpType::ADD, return x + y;)
DEFINE(BinaryOpType::MAXIMUM, return x > y ? x : y;)
DEFINE(BinaryOpType::REMAINDER, if constexpr (std::is_integral<T>::value) { return y == 0 ? 0 : x % y; } else return std::fmod(float(x), float(y));)
template <typename T, bool b> constexpr static bool isVec = b && (std::is_same<T, float>::value || std::is_same<T, half>::value);
static __attribute__((always_inline)) unsigned divideWork(const unsigned size, const unsigned vectorWidthShifts, const unsigned worker) { return (size + CTXT_WORKERS - 1 - worker) / CTXT_WORKERS >> vectorWidthShifts; }
template <BinaryOpType op, typename T> class BinaryOp1DInPlace : public MultiVertex {
public:
  InOut<Vector<T, VectorLayout::SPAN, 8>> in1Out; Input<Vector<T, VectorLayout::ONE_PTR, 8>> in2;
  IS_EXTERNAL_CODELET((isVec<T, true>));
  bool compute(unsigned wid) { for (unsigned j = wid; j < in1Out.size(); j += numWorkers()) in1Out[j] = BinaryOpFn<op, T, void>::fn(in1Out[j], in2[j]); return true; }
};
#define INST(op) template class BinaryOp1DInPlace<op, float>; template class BinaryOp1DInPlace<op, half>; template class BinaryOp1DInPlace<op, int>; template class BinaryOp1DInPlace<op, unsigned>;
INST(BinaryOpType::ADD) INST(BinaryOpType::MAXIMUM) INST(BinaryOpType::REMAINDER)
template <typename T> class Heap : public Vertex { public: Input<Vector<T>> v; Output<Vector<unsigned, VectorLayout::SPAN>> idx; const unsigned k;
  template <typename C> void sift(unsigned i, unsigned n, C cmp) { while (true) { unsigned c = 2 * i + 1; if (c >= n) return; if (c + 1 < n && cmp(idx[c], idx[c + 1])) ++c; if (!cmp(idx[i], idx[c])) return; std::swap(idx[i], idx[c]); i = c; } }
  bool compute() { auto less = [this](unsigned a, unsigned b) { return v[a] < v[b]; }; const unsigned n = v.size(); for (unsigned i = 0; i < n; ++i) idx[i] = i; for (int i = int(n) / 2 - 1; i >= 0; --i) sift(i, n, less); for (unsigned e = n; e-- > 1;) { std::swap(idx[0], idx[e]); sift(0, e, less); } return true; } };
template class Heap<float>; template class Heap<int>;
}
