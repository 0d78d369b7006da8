// Loops that the tile repeats without a branch: the name of their count.
#pragma once

#include <abele/scalars.hpp>

namespace poplar {

/// Calls f(i) for i < count.
template <class F> inline void repeat(rptsize_t count, F f) {
  for (rptsize_t i = 0; i != count; ++i)
    f(i);
}

} // namespace poplar
