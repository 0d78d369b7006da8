// Open addressing: insert and look up, keys and values in two vectors.
#include <poplar/Vertex.hpp>
#include <cstdint>

using namespace poplar;

static const uint32_t EMPTY = ~0u;

static uint32_t murmur(uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6b;
  h ^= h >> 13;
  h *= 0xc2b2ae35;
  return h ^ h >> 16;
}

class HashInsert : public Vertex {
public:
  Input<Vector<uint32_t>> keys, values;
  InOut<Vector<uint32_t>> tableKeys, tableValues;
  Output<uint32_t> overflow;
  bool compute() {
    const uint32_t mask = tableKeys.size() - 1;
    uint32_t lost = 0;
    for (uint32_t i = 0; i < keys.size(); ++i) {
      uint32_t at = murmur(keys[i]) & mask, tries = 0;
      while (tableKeys[at] != EMPTY && tableKeys[at] != keys[i] && tries++ <= mask)
        at = (at + 1) & mask;
      if (tries > mask) {
        ++lost;
        continue;
      }
      tableKeys[at] = keys[i];
      tableValues[at] = values[i];
    }
    *overflow = lost;
    return true;
  }
};

class HashLookup : public Vertex {
public:
  Input<Vector<uint32_t>> keys, tableKeys, tableValues;
  Output<Vector<uint32_t>> found;
  bool compute() {
    const uint32_t mask = tableKeys.size() - 1;
    for (uint32_t i = 0; i < keys.size(); ++i) {
      uint32_t at = murmur(keys[i]) & mask;
      while (tableKeys[at] != EMPTY && tableKeys[at] != keys[i])
        at = (at + 1) & mask;
      found[i] = tableKeys[at] == EMPTY ? EMPTY : tableValues[at];
    }
    return true;
  }
};
