// CRC-32 by a table, Adler-32 and FNV beside it.
#include <poplar/Vertex.hpp>
#include <array>
#include <cstdint>

namespace {

constexpr std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> t{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int k = 0; k < 8; ++k)
      c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    t[n] = c;
  }
  return t;
}
constexpr auto crcTable = makeTable();

} // namespace

class Checksums : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<unsigned char>> data;
  poplar::Output<poplar::Vector<unsigned>> out; // crc, adler, fnv
  bool compute() {
    uint32_t crc = ~0u, a = 1, b = 0, fnv = 2166136261u;
    for (auto byte : data) {
      crc = crcTable[(crc ^ byte) & 0xff] ^ (crc >> 8);
      a = (a + byte) % 65521;
      b = (b + a) % 65521;
      fnv = (fnv ^ byte) * 16777619u;
    }
    out[0] = ~crc;
    out[1] = b << 16 | a;
    out[2] = fnv;
    return true;
  }
};
