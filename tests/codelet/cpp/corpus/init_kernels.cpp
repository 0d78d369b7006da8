// Template arguments that are vector types, integers with suffixes, characters, and other templates.
#include <poplar/HalfFloat.hpp>
#include <poplar/VectorTypes.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

template <typename T, typename V> class InitKernel : public Vertex {
public:
  Output<Vector<T, VectorLayout::SPAN, 8>> out;
  T value;
  bool compute() {
    constexpr unsigned lanes = sizeof(V) / sizeof(T);
    V wide;
    for (unsigned i = 0; i < lanes; ++i)
      wide[i] = value;
    V *p = reinterpret_cast<V *>(out.begin());
    const unsigned n = out.size() / lanes;
    for (unsigned i = 0; i < n; ++i)
      p[i] = wide;
    for (unsigned i = lanes * n; i < out.size(); ++i)
      out[i] = value;
    return true;
  }
};

template class InitKernel<float, float2>;
template class InitKernel<half, half2>;
template class InitKernel<half, half4>;

template <typename T> struct Square {
  static T apply(T x) { return x * x; }
};
template <typename T> struct Twice {
  static T apply(T x) { return x + x; }
};
template <class Outer, class Inner> struct Compose {
  template <class T> static T apply(T x) { return Outer::apply(Inner::apply(x)); }
};

template <typename Function, char Tag, unsigned Repeats, int Offset> class MapKernel : public Vertex {
public:
  InOut<Vector<float>> data;
  bool compute() {
    for (auto &v : data) {
      for (unsigned i = 0; i < Repeats; ++i)
        v = Function::apply(v);
      v += Offset;
    }
    return Tag != 0;
  }
};

template class MapKernel<Square<float>, 'a', 1u, -3>;
template class MapKernel<Compose<Square<float>, Twice<float>>, 'b', 2U, 0x10>;
