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

/// Metadata as they lie in memory: the scale in bits 0 to 5, signed; the format in bit 7.
using MetadataType = unsigned char;

/// What the bits of quarters mean: format and scale; a value is what the bits say times 2^scale. It lies as MetadataType.
struct QuarterMetadata {
  enum class Format : std::uint8_t { F143, F152 };

  std::int8_t scale : 6;
  std::uint8_t : 1;
  Format format : 1;

  constexpr QuarterMetadata(Format f = Format::F143, int s = 0) : scale(static_cast<std::int8_t>(s)), format(f) {}
  constexpr QuarterMetadata(MetadataType packed)
      : scale(static_cast<std::int8_t>(static_cast<std::int8_t>(packed << 2) >> 2)),
        format(packed & 0x80 ? Format::F152 : Format::F143) {}
  constexpr MetadataType pack() const {
    return static_cast<MetadataType>((format == Format::F152 ? 0x80 : 0) | (scale & 0x3f));
  }
  static constexpr QuarterMetadata unpack(MetadataType packed) { return QuarterMetadata(packed); }
  constexpr operator MetadataType() const { return pack(); }
  constexpr MetadataType getBinary() const { return pack(); }
  constexpr Format getFormat() const { return format; }
  constexpr int getScale() const { return scale; }
  void setFormat(Format f) { format = f; }
  void setScale(int s) { scale = static_cast<std::int8_t>(s); }
  constexpr int fractionBits() const { return format == Format::F143 ? 3 : 2; }
  constexpr int bias() const { return format == Format::F143 ? 8 : 16; }
  constexpr bool operator==(const QuarterMetadata &other) const { return pack() == other.pack(); }
  constexpr bool operator!=(const QuarterMetadata &other) const { return pack() != other.pack(); }
};
using quarter_metadata = QuarterMetadata;

constexpr QuarterMetadata unpackMetadata(QuarterMetadata metadata) { return metadata; }
constexpr QuarterMetadata unpackMetadata(MetadataType packed) { return QuarterMetadata(packed); }
inline QuarterMetadata unpackMetadata(const MetadataType *packed) { return QuarterMetadata(*packed); }
constexpr MetadataType packMetadata(QuarterMetadata metadata) { return metadata.pack(); }
constexpr MetadataType packMetadata(QuarterMetadata::Format format, int scale) {
  return QuarterMetadata(format, scale).pack();
}

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
