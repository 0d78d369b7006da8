// Least significant digit first, four bits at a time, counts on the stack.
#include <poplar/Vertex.hpp>
#include <cstdint>
#include <cstring>

class RadixSort : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<uint32_t>> keys;
  poplar::InOut<poplar::Vector<uint32_t, poplar::VectorLayout::ONE_PTR>> spare;

  bool compute() {
    uint32_t *a = &keys[0], *b = &spare[0];
    const uint32_t n = keys.size();
    for (int shift = 0; shift < 32; shift += 4) {
      uint32_t count[16];
      memset(count, 0, sizeof(count));
      for (uint32_t i = 0; i < n; ++i)
        count[(a[i] >> shift) & 15]++;
      uint32_t sum = 0;
      for (int d = 0; d < 16; ++d) {
        const uint32_t c = count[d];
        count[d] = sum;
        sum += c;
      }
      for (uint32_t i = 0; i < n; ++i)
        b[count[(a[i] >> shift) & 15]++] = a[i];
      uint32_t *t = a;
      a = b;
      b = t;
    }
    return true;
  }
};
