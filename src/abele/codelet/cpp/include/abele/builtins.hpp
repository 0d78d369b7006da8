// The machine's instructions as functions, those that have a meaning away from it. They are the compiler's own on the
// tile: no header has to be included for them, and no name but theirs comes with them.
#pragma once

#include <abele/math.hpp>

#define ABELE_UNARY(NAME, CALL)                                                                                        \
  template <class T> inline T __builtin_ipu_##NAME(T x) { return abele::CALL(x); }                                     \
  inline float __builtin_ipu_f32##NAME(float x) { return abele::CALL(x); }                                             \
  inline abele::float2 __builtin_ipu_f32v2##NAME(abele::float2 x) { return abele::CALL(x); }                           \
  inline half __builtin_ipu_f16##NAME(half x) { return abele::CALL(x); }                                               \
  inline abele::half2 __builtin_ipu_f16v2##NAME(abele::half2 x) { return abele::CALL(x); }                             \
  inline abele::half4 __builtin_ipu_f16v4##NAME(abele::half4 x) { return abele::CALL(x); }

#define ABELE_BINARY(NAME, EXPRESSION)                                                                                 \
  template <class T> inline T __builtin_ipu_##NAME(T x, T y) { return EXPRESSION; }                                    \
  inline float __builtin_ipu_f32##NAME(float x, float y) { return EXPRESSION; }                                        \
  inline abele::float2 __builtin_ipu_f32v2##NAME(abele::float2 x, abele::float2 y) { return EXPRESSION; }              \
  inline abele::float4 __builtin_ipu_f32v4##NAME(abele::float4 x, abele::float4 y) { return EXPRESSION; }              \
  inline half __builtin_ipu_f16##NAME(half x, half y) { return EXPRESSION; }                                           \
  inline abele::half2 __builtin_ipu_f16v2##NAME(abele::half2 x, abele::half2 y) { return EXPRESSION; }                 \
  inline abele::half4 __builtin_ipu_f16v4##NAME(abele::half4 x, abele::half4 y) { return EXPRESSION; }                 \
  inline abele::half8 __builtin_ipu_f16v8##NAME(abele::half8 x, abele::half8 y) { return EXPRESSION; }

ABELE_UNARY(exp, exp)
ABELE_UNARY(exp2, exp2)
ABELE_UNARY(ln, log)
ABELE_UNARY(log2, log2)
ABELE_UNARY(sqrt, sqrt)
ABELE_UNARY(oox, inverse)
ABELE_UNARY(oorx, rsqrt)
ABELE_UNARY(sigm, sigmoid)
ABELE_UNARY(tanh, tanh)
ABELE_UNARY(abs, abs)
ABELE_UNARY(rint, rint)
ABELE_BINARY(add, x + y)
ABELE_BINARY(sub, x - y)
ABELE_BINARY(mul, x * y)
ABELE_BINARY(max, abele::max(x, y))
ABELE_BINARY(min, abele::min(x, y))
ABELE_BINARY(absadd, abele::absadd(x, y))
ABELE_BINARY(absmax, abele::absmax(x, y))

#undef ABELE_UNARY
#undef ABELE_BINARY

template <class T> inline T __builtin_ipu_clamp(T x, T low, T high) { return abele::clamp(x, low, high); }
inline float __builtin_ipu_f32clamp(float x, abele::float2 range) { return abele::clamp(x, range[0], range[1]); }
inline abele::float2 __builtin_ipu_f32v2clamp(abele::float2 x, abele::float2 range) {
  return abele::clamp(x, abele::float2(range[0]), abele::float2(range[1]));
}
inline abele::half2 __builtin_ipu_f16v2clamp(abele::half2 x, abele::half2 range) {
  return abele::clamp(x, abele::half2(range[0]), abele::half2(range[1]));
}
inline abele::half4 __builtin_ipu_f16v4clamp(abele::half4 x, abele::half2 range) {
  return abele::clamp(x, abele::half4(range[0]), abele::half4(range[1]));
}
template <class T> inline T __builtin_ipu_fma(T x, T y, T z) { return abele::fma(x, y, z); }
inline float __builtin_ipu_f16v2sum(abele::half2 x) { return float(x[0]) + float(x[1]); }
inline abele::float2 __builtin_ipu_f16v4sum(abele::half4 x) { return abele::float2{float(x[0]) + float(x[1]), float(x[2]) + float(x[3])}; }
inline float __builtin_ipu_f16tof32(half x) { return float(x); }
inline half __builtin_ipu_f32tof16(float x) { return half(x); }
inline abele::float2 __builtin_ipu_f16v2tof32(abele::half2 x) { return __builtin_convertvector(x, abele::float2); }
inline abele::half2 __builtin_ipu_f32v2tof16(abele::float2 x) { return __builtin_convertvector(x, abele::half2); }

inline int __builtin_ipu_roll8l(int x, int y) { return int((unsigned(x) << 8) | (unsigned(y) >> 24)); }
inline unsigned __builtin_ipu_clz(unsigned x) { return x == 0 ? 32u : unsigned(__builtin_clz(x)); }
inline unsigned __builtin_ipu_popc(unsigned x) { return unsigned(__builtin_popcount(x)); }
inline unsigned __builtin_ipu_bitrev8(unsigned x) {
  return (unsigned(__builtin_bitreverse8(x >> 24)) << 24) | (unsigned(__builtin_bitreverse8(x >> 16)) << 16) |
         (unsigned(__builtin_bitreverse8(x >> 8)) << 8) | unsigned(__builtin_bitreverse8(x));
}
inline int __builtin_ipu_max(int x, int y) { return x < y ? y : x; }
inline int __builtin_ipu_min(int x, int y) { return y < x ? y : x; }

inline unsigned __builtin_ipu_urand32() { return abele_urand32(); }
inline unsigned long long __builtin_ipu_urand64() {
  unsigned long long low = abele_urand32();
  return low | (static_cast<unsigned long long>(abele_urand32()) << 32);
}
inline float __builtin_ipu_urand_f32() { return abele::uniform(); }
inline half __builtin_ipu_urand_f16() { return half(abele::uniform()); }
inline float __builtin_ipu_f32rand() { return abele::uniform(); }

// Sums of twelve uniform numbers, as the hardware's are: mean 0, variance 1.
inline abele::float2 __builtin_ipu_f32v2grand() { return abele::float2{abele::gaussian(), abele::gaussian()}; }
inline abele::half2 __builtin_ipu_f16v2grand() { return abele::half2{half(abele::gaussian()), half(abele::gaussian())}; }
inline abele::half4 __builtin_ipu_f16v4grand() {
  return abele::half4{half(abele::gaussian()), half(abele::gaussian()), half(abele::gaussian()), half(abele::gaussian())};
}
// Elements that are kept with a probability, else zero.
inline abele::float2 __builtin_ipu_f32v2rmask(abele::float2 x, float keep) { return abele::masked(x, keep); }
inline abele::half4 __builtin_ipu_f16v4rmask(abele::half4 x, float keep) { return abele::masked(x, keep); }

inline unsigned __builtin_ipu_get_worker_id() { return abele_worker_id(); }
inline unsigned __builtin_ipu_get(unsigned csr) {
  return csr == 0 /* the worker's status, with its number */ ? abele_worker_id() : abele_control_register();
}
