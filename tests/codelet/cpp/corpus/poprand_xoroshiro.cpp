// xoroshiro128+ with its state in the vertex's data, and Box-Muller on top of it.
#include <poplar/Vertex.hpp>
#include <cmath>
#include <cstdint>

using namespace poplar;

namespace {
inline uint64_t rotl(const uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

struct Xoroshiro {
  uint64_t s0, s1;
  uint64_t next() {
    const uint64_t a = s0;
    uint64_t b = s1;
    const uint64_t result = a + b;
    b ^= a;
    s0 = rotl(a, 24) ^ b ^ (b << 16);
    s1 = rotl(b, 37);
    return result;
  }
};
} // namespace

class XoroshiroBits : public Vertex {
public:
  InOut<Vector<unsigned>> state;
  Output<Vector<unsigned>> out;

  bool compute() {
    Xoroshiro rng{(uint64_t(state[1]) << 32) | state[0], (uint64_t(state[3]) << 32) | state[2]};
    for (auto &v : out)
      v = static_cast<unsigned>(rng.next() >> 32);
    state[0] = unsigned(rng.s0);
    state[1] = unsigned(rng.s0 >> 32);
    state[2] = unsigned(rng.s1);
    state[3] = unsigned(rng.s1 >> 32);
    return true;
  }
};

class NormalPairs : public Vertex {
public:
  Input<Vector<float>> u1, u2;
  Output<Vector<float>> out;
  bool compute() {
    for (unsigned i = 0; i < u1.size(); ++i) {
      const float r = std::sqrt(-2 * std::log(u1[i])), t = 2 * 3.14159265358979f * u2[i];
      out[2 * i] = r * std::cos(t);
      out[2 * i + 1] = r * std::sin(t);
    }
    return true;
  }
};
