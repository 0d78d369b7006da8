#include <poplar/Vertex.hpp>
#include <poplar/FieldTypes.hpp>
#include <poplar/HalfFloat.hpp>
#include <type_traits>
#include "print.h"
#include "poplar/StackSizeDefs.hpp"
#define ALPHA_SIZE 20
namespace ipu { namespace alg {
template <typename T> inline T max3(T a, T b, T c) { return std::max(a, std::max(b, c)); }
class SW : public poplar::MultiVertex {
public:
  poplar::InOut<poplar::Vector<int, poplar::VectorLayout::ONE_PTR>> scratch; const unsigned stride; const int gap;
  poplar::Input<poplar::Vector<signed char, poplar::VectorLayout::ONE_PTR>> sim; poplar::Input<poplar::Vector<uint8_t, poplar::VectorLayout::ONE_PTR>> a, b; poplar::Input<unsigned> la, lb; poplar::Output<poplar::Vector<int, poplar::VectorLayout::ONE_PTR>> score;
  bool compute(unsigned workerId) {
    int *h = &scratch[workerId * stride]; uint8_t *seq = (uint8_t *)&a[0];
    memset(h, 0, (la + 1) * sizeof(int));
    int best = 0;
    for (unsigned j = 0; j < lb; ++j) { int diag = 0; for (unsigned i = 1; i <= la; ++i) { const int up = h[i]; int v = diag + int(sim[seq[i - 1] * ALPHA_SIZE + b[j]]); v = max3(v, up + gap, h[i - 1] + gap); h[i] = v < 0 ? 0 : v; diag = up; best = best > h[i] ? best : h[i]; } }
    score[workerId] = best; return true; }
};
}}
