// Halves by their bits, for code that is shared with the host.
#pragma once

#include <poplar/HalfFloat.hpp>

#include <cstdint>

namespace poplar {

/// An IEEE binary16 number.
class IeeeHalf {
  ::half value;

public:
  IeeeHalf() = default;
  IeeeHalf(float x) : value(static_cast<::half>(x)) {}
  operator float() const { return static_cast<float>(value); }
  std::uint16_t bit16() const { return __builtin_bit_cast(std::uint16_t, value); }
  static IeeeHalf fromBits(std::uint16_t bits) {
    IeeeHalf made;
    made.value = __builtin_bit_cast(::half, bits);
    return made;
  }
};

} // namespace poplar
