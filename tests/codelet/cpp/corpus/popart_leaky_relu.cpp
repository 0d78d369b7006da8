// A custom activation: the tile's side in its own instructions, the other in C++.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

#ifdef __IPU__
#include <ipu_vector_math>
#include <ipudef.h>
static __attribute__((always_inline)) float fast_select(float x, float y) {
  asm volatile("setzi $m1, 0 \n nop" : : : "$m1");
  return x > 0.0f ? x : y;
}
#else
static inline float fast_select(float x, float y) { return x > 0.0f ? x : y; }
#endif

template <typename T> class LeakyReluOpVertex : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<T, poplar::VectorLayout::SPAN, 8>> in;
  poplar::Output<poplar::Vector<T, poplar::VectorLayout::SPAN, 8>> out;
  float alpha;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i) {
      const float x = static_cast<float>(in[i]);
      out[i] = static_cast<T>(fast_select(x, alpha * x));
    }
    return true;
  }
};

template <typename T> class LeakyReluGradOpVertex : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<T>> grad_in;
  poplar::Input<poplar::Vector<T>> fwd_input;
  poplar::Output<poplar::Vector<T>> grad_out;
  float alpha;

  bool compute() {
    const T one = 1, slope = alpha;
    for (unsigned i = 0; i < grad_in.size(); ++i)
      grad_out[i] = grad_in[i] * (fwd_input[i] > T(0) ? one : slope);
    return true;
  }
};

template class LeakyReluOpVertex<float>;
template class LeakyReluOpVertex<half>;
template class LeakyReluGradOpVertex<float>;
template class LeakyReluGradOpVertex<half>;
