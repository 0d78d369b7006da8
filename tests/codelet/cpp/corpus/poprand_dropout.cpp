// Random numbers: one class by the hardware's generator alone, one with its own.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cstdint>

using namespace poplar;

namespace poprand {

template <typename OutType> class UniformSupervisor : public SupervisorVertex {
public:
  Output<Vector<OutType, VectorLayout::SPAN, 8>> out;
  const float offset, scale;
  bool compute() {
    unsigned bits = 0;
    asm volatile("urand32 %0" : "=r"(bits));
    out[0] = offset + scale * bits;
    return true;
  }
};
template class UniformSupervisor<float>;

template <typename T> class DropoutByHash : public Vertex {
public:
  Input<Vector<T>> in;
  Output<Vector<T, VectorLayout::ONE_PTR>> out;
  const float scale;
  const unsigned keep; // of 65536
  const unsigned seed;

  static std::uint32_t mix(std::uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
  }

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = (mix(seed + i) & 0xffff) < keep ? T(float(in[i]) * scale) : T(0);
    return true;
  }
};
template class DropoutByHash<float>;
template class DropoutByHash<half>;

} // namespace poprand
