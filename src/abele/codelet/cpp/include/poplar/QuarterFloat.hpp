// The 8-bit float: its bits, and metadata that say which format they have and by what power of two they are scaled.
// Formats F143 (bias 8, largest 240) and F152 (bias 16, largest 57344): no infinities, and 0x80 is the only NaN.
#pragma once

#include <abele/scalars.hpp>

#include <cstdint>

/// Bits of an 8-bit float, without its metadata.
struct quarter {
  unsigned char bits;
};

namespace poplar {

using ::quarter;

/// What the bits of quarters mean: format and scale; a value is what the bits say times 2^scale.
struct QuarterMetadata {
  enum class Format : std::uint8_t { F143, F152 };

  Format format = Format::F143;
  std::int8_t scale = 0;

  constexpr QuarterMetadata() = default;
  constexpr QuarterMetadata(Format f, int s) : format(f), scale(static_cast<std::int8_t>(s)) {}
  /// From a byte: the scale in bits 0 to 5, signed; the format in bit 7.
  constexpr explicit QuarterMetadata(unsigned char packed)
      : format(packed & 0x80 ? Format::F152 : Format::F143), scale(static_cast<std::int8_t>(packed << 2) >> 2) {}
  constexpr unsigned char pack() const {
    return static_cast<unsigned char>((format == Format::F152 ? 0x80 : 0) | (scale & 0x3f));
  }
  Format getFormat() const { return format; }
  int getScale() const { return scale; }
  int fractionBits() const { return format == Format::F143 ? 3 : 2; }
  int bias() const { return format == Format::F143 ? 8 : 16; }
};
using quarter_metadata = QuarterMetadata;

/// The value of a quarter.
inline float toFloat(quarter q, const QuarterMetadata &metadata) {
  if (q.bits == 0x80)
    return __builtin_nanf("");
  const int fraction = metadata.fractionBits(), magnitude = q.bits & 0x7f;
  const int exponent = magnitude >> fraction, rest = magnitude & ((1 << fraction) - 1);
  const int significand = exponent == 0 ? rest : rest | (1 << fraction);
  const int power = (exponent == 0 ? 1 : exponent) - metadata.bias() - fraction + metadata.scale;
  const float unit = __builtin_bit_cast(float, static_cast<std::uint32_t>(power + 127) << 23);
  return (q.bits & 0x80 ? -1.0f : 1.0f) * static_cast<float>(significand) * unit;
}
inline ::half toHalf(quarter q, const QuarterMetadata &metadata) { return static_cast<::half>(toFloat(q, metadata)); }

/// A value as a quarter, rounded to nearest, ties to even; what is too large, and NaN, becomes NaN, or the largest.
inline quarter toQuarter(float x, const QuarterMetadata &metadata, bool nanOnOverflow = true) {
  const int fraction = metadata.fractionBits(), bias = metadata.bias();
  const std::uint32_t sign = __builtin_bit_cast(std::uint32_t, x) >> 31;
  const float unscale = __builtin_bit_cast(float, static_cast<std::uint32_t>(127 - metadata.scale) << 23);
  const float size = __builtin_fabsf(x) * unscale;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, size);
  if (!(__builtin_fabsf(x) < __builtin_inff()))
    return {0x80};
  int exponent = static_cast<int>(bits >> 23) - 127;
  exponent = exponent < 1 - bias ? 1 - bias : exponent; // below, numbers are subnormal: of one step
  const float step = __builtin_bit_cast(float, static_cast<std::uint32_t>(fraction - exponent + 127) << 23);
  int code = 0x80;
  if (size < 65536.0f)
    code = static_cast<int>(__builtin_rintf(size * step)) + ((exponent + bias - 1) << fraction);
  if (code > 0x7f) {
    if (nanOnOverflow)
      return {0x80};
    code = 0x7f;
  }
  return {static_cast<unsigned char>(code == 0 ? 0 : code | static_cast<int>(sign << 7))};
}
inline quarter toQuarter(::half x, const QuarterMetadata &metadata, bool nanOnOverflow = true) {
  return toQuarter(static_cast<float>(x), metadata, nanOnOverflow);
}

} // namespace poplar
