// y = a x + y for several types, the mapping of types spelled by hand.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <type_traits>

namespace blas {

template <typename T> struct Accumulator { using type = T; };
template <> struct Accumulator<half> { using type = float; };

template <typename T, bool alphaIsOne = false>
class Axpy : public poplar::Vertex {
  using Acc = typename Accumulator<T>::type;

public:
  poplar::Input<poplar::Vector<T>> x;
  poplar::InOut<poplar::Vector<T>> y;
  const T alpha;

  bool compute() {
    const auto n = x.size();
    for (unsigned i = 0; i != n; ++i) {
      Acc v = static_cast<Acc>(x[i]);
      if (!alphaIsOne)
        v = v * static_cast<Acc>(alpha);
      y[i] = static_cast<T>(static_cast<Acc>(y[i]) + v);
    }
    return true;
  }
};

template class Axpy<float>;
template class Axpy<float, true>;
template class Axpy<half>;
template class Axpy<half, true>;
template class Axpy<int>;
template class Axpy<unsigned>;
template class Axpy<short>;

} // namespace blas
