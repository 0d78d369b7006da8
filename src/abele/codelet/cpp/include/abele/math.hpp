// Elementary functions of every floating-point type, element by element, behind ipu:: and __builtin_ipu_.
#pragma once

#include <abele/native.hpp>
#include <abele/types.hpp>

#include <type_traits>

namespace abele {

template <class T> struct Elements {
  using type = T;
  static constexpr int count = 1;
};
template <class T, int N> struct Elements<T __attribute__((ext_vector_type(N)))> {
  using type = T;
  static constexpr int count = N;
};
template <class T> using element_t = typename Elements<T>::type;

template <class T> constexpr bool is_float = std::is_same<element_t<T>, float>::value || std::is_same<element_t<T>, half>::value;

template <class T, class F> inline T each(T x, F f) {
  if constexpr (Elements<T>::count == 1) {
    return f(x);
  } else {
    T result;
#pragma unroll
    for (int i = 0; i != Elements<T>::count; ++i)
      result[i] = f(x[i]);
    return result;
  }
}

inline float sigmoid1(float x) { return abele_sigmoid_f32(x); }
inline half sigmoid1(half x) { return abele_sigmoid_f16(x); }
inline float rsqrt1(float x) { return abele_rsqrt_f32(x); }
inline half rsqrt1(half x) { return abele_rsqrt_f16(x); }
inline float tanh1(float x) { return abele_tanh_f32(x); }
inline half tanh1(half x) { return abele_tanh_f16(x); }

template <class T> inline T exp(T x) { return __builtin_elementwise_exp(x); }
template <class T> inline T exp2(T x) { return __builtin_elementwise_exp2(x); }
template <class T> inline T log(T x) { return __builtin_elementwise_log(x); }
template <class T> inline T log2(T x) { return __builtin_elementwise_log2(x); }
template <class T> inline T log10(T x) { return __builtin_elementwise_log10(x); }
template <class T> inline T sqrt(T x) { return __builtin_elementwise_sqrt(x); }
template <class T> inline T sin(T x) { return __builtin_elementwise_sin(x); }
template <class T> inline T cos(T x) { return __builtin_elementwise_cos(x); }
template <class T> inline T floor(T x) { return __builtin_elementwise_floor(x); }
template <class T> inline T ceil(T x) { return __builtin_elementwise_ceil(x); }
template <class T> inline T trunc(T x) { return __builtin_elementwise_trunc(x); }
template <class T> inline T rint(T x) { return __builtin_elementwise_rint(x); }
template <class T> inline T abs(T x) { return __builtin_elementwise_abs(x); }
template <class T> inline T pow(T x, T y) { return __builtin_elementwise_pow(x, y); }
template <class T> inline T max(T x, T y) { return __builtin_elementwise_max(x, y); }
template <class T> inline T min(T x, T y) { return __builtin_elementwise_min(x, y); }
template <class T> inline T fma(T x, T y, T z) { return __builtin_elementwise_fma(x, y, z); }
template <class T> inline T copysign(T x, T y) { return __builtin_elementwise_copysign(x, y); }
template <class T> inline T tan(T x) { return sin(x) / cos(x); }
template <class T> inline T expm1(T x) {
  return each(x, [](element_t<T> e) { return element_t<T>(__builtin_expm1f(float(e))); });
}
template <class T> inline T log1p(T x) {
  return each(x, [](element_t<T> e) { return element_t<T>(__builtin_log1pf(float(e))); });
}
template <class T> inline T sigmoid(T x) {
  return each(x, [](element_t<T> e) { return sigmoid1(e); });
}
template <class T> inline T rsqrt(T x) {
  return each(x, [](element_t<T> e) { return rsqrt1(e); });
}
template <class T> inline T tanh(T x) {
  return each(x, [](element_t<T> e) { return tanh1(e); });
}
template <class T> inline T inverse(T x) { return T(element_t<T>(1)) / x; }
template <class T> inline T absadd(T x, T y) { return abs(x) + abs(y); }
template <class T> inline T absmax(T x, T y) { return max(abs(x), abs(y)); }
template <class T> inline T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T> inline element_t<T> sum(T x) {
  element_t<T> total = x[0];
#pragma unroll
  for (int i = 1; i < Elements<T>::count; ++i)
    total += x[i];
  return total;
}
template <class T> inline float dot(T x, T y) {
  float total = float(x[0]) * float(y[0]);
#pragma unroll
  for (int i = 1; i < Elements<T>::count; ++i)
    total += float(x[i]) * float(y[i]);
  return total;
}

inline float unit(unsigned bits) { return float(bits >> 8) * 0x1p-24f; }
inline float uniform() { return unit(abele_urand32()); }
inline float gaussian() {
  float total = -6.0f;
#pragma unroll
  for (int i = 0; i < 12; ++i)
    total += uniform();
  return total;
}
template <class T> inline T masked(T x, float keep) {
  return each(x, [keep](element_t<T> e) { return uniform() < keep ? e : element_t<T>(0); });
}

} // namespace abele
