// The 16-bit float of the machine: IEEE binary16, every operation rounded once.
#pragma once

#include <abele/scalars.hpp>

#include <cmath>
#include <limits>

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

template <> class numeric_limits<half> {
public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false, is_iec559 = true;
  static constexpr bool is_bounded = true, is_modulo = false, has_infinity = true, has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true, traps = false, tinyness_before = false;
  static constexpr int radix = 2, digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, max_exponent = 16, min_exponent10 = -4, max_exponent10 = 4;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr half min() noexcept { return half(6.103515625e-5f); }
  static constexpr half max() noexcept { return half(65504.0f); }
  static constexpr half lowest() noexcept { return half(-65504.0f); }
  static constexpr half epsilon() noexcept { return half(9.765625e-4f); }
  static constexpr half round_error() noexcept { return half(0.5f); }
  static constexpr half denorm_min() noexcept { return half(5.9604644775390625e-8f); }
  static constexpr half infinity() noexcept { return half(__builtin_inff()); }
  static constexpr half quiet_NaN() noexcept { return half(__builtin_nanf("")); }
  static constexpr half signaling_NaN() noexcept { return half(__builtin_nansf("")); }
};
} // namespace std
