// The 16-bit float of the machine: IEEE binary16, every operation rounded once.
#pragma once

#include <abele/scalars.hpp>

#include <cmath>

namespace poplar {
using ::half;
} // namespace poplar

namespace std {
inline half abs(half x) { return __builtin_elementwise_abs(x); }
inline half fabs(half x) { return __builtin_elementwise_abs(x); }
inline half sqrt(half x) { return __builtin_elementwise_sqrt(x); }
inline half exp(half x) { return __builtin_elementwise_exp(x); }
inline half log(half x) { return __builtin_elementwise_log(x); }
inline half floor(half x) { return __builtin_elementwise_floor(x); }
inline half ceil(half x) { return __builtin_elementwise_ceil(x); }
inline half trunc(half x) { return __builtin_elementwise_trunc(x); }
inline half fmax(half x, half y) { return __builtin_elementwise_max(x, y); }
inline half fmin(half x, half y) { return __builtin_elementwise_min(x, y); }
inline half pow(half x, half y) { return __builtin_elementwise_pow(x, y); }
inline half tanh(half x) { return half(std::tanh(float(x))); }
inline half sin(half x) { return __builtin_elementwise_sin(x); }
inline half cos(half x) { return __builtin_elementwise_cos(x); }
inline bool isnan(half x) { return x != x; }
inline bool isinf(half x) { return __builtin_elementwise_abs(x) == half(__builtin_inff()); }
inline bool isfinite(half x) { return __builtin_elementwise_abs(x) < half(__builtin_inff()); }
} // namespace std
