// Loops that the tile repeats without a branch: by calls of a function.
#pragma once

namespace poplar {

/// Calls f(i) for i < count.
template <class F> inline void repeat(unsigned count, F f) {
  for (unsigned i = 0; i != count; ++i)
    f(i);
}

} // namespace poplar
