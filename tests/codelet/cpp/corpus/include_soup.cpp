// Everything that a file copied from elsewhere tends to include.
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <poplar/AlignConstraint.hpp>
#include <poplar/FieldTypes.hpp>
#include <poplar/HalfFloat.hpp>
#include <poplar/IeeeHalf.hpp>
#include <poplar/StackSizeDefs.hpp>
#include <poplar/TileConstants.hpp>
#include <poplar/VectorTypes.hpp>
#include <poplar/Vertex.hpp>
#include <print.h>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef __IPU__
#include <arch/gc_tilereg.h>
#include <ipu_intrinsics>
#endif

#define WORKERS 6

class ArgMinMax : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> x;
  poplar::Output<poplar::Vector<int>> at;

  static std::pair<int, int> find(const float *p, std::size_t n) {
    assert(n > 0);
    int low = 0, high = 0;
    for (std::size_t i = 1; i < n; ++i) {
      if (p[i] < p[low])
        low = i;
      if (p[i] > p[high])
        high = i;
    }
    return {low, high};
  }

  bool compute() {
    const auto [low, high] = find(&x[0], x.size());
    at[0] = low;
    at[1] = high;
    return true;
  }
};
