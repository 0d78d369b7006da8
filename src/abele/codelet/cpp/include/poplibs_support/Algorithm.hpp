// Whole numbers divided and rounded.
#pragma once

namespace poplibs_support {

template <class T, class U> constexpr auto ceildiv(T x, U y) { return (x + y - 1) / y; }
template <class T, class U> constexpr auto ceildiv0(T x, U y) { return x == 0 ? T(0) : T((x + y - 1) / y); }
template <class T, class U> constexpr auto floordiv(T x, U y) { return x / y; }
template <class T, class U> constexpr auto roundUp(T x, U y) { return (x + y - 1) / y * y; }
template <class T, class U> constexpr auto roundDown(T x, U y) { return x / y * y; }
template <class T> constexpr T gcd(T x, T y) { return y == 0 ? x : gcd(y, T(x % y)); }
template <class T> constexpr T lcm(T x, T y) { return x / gcd(x, y) * y; }
constexpr unsigned ceilLog2(unsigned x) { return x <= 1 ? 0 : 32 - __builtin_clz(x - 1); }

} // namespace poplibs_support
