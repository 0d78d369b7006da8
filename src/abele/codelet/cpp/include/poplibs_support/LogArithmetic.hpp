// Products and sums of probabilities that are kept as logarithms.
#pragma once

#include <cmath>
#include <limits>

namespace poplibs_support {
namespace log {

constexpr float min = -10000.0f; // stands for the logarithm of 0, also in halves
constexpr float probabilityZero = min;
constexpr float probabilityOne = 0.0f;

template <class T> inline T mul(const T x, const T y) { return x + y; }
template <class T> inline T div(const T x, const T y) { return x - y; }
template <class T> inline T add(const T x, const T y) {
  const float larger = static_cast<float>(x < y ? y : x), smaller = static_cast<float>(x < y ? x : y);
  return static_cast<T>(larger + std::log(1.0f + std::exp(smaller - larger)));
}

} // namespace log
} // namespace poplibs_support
