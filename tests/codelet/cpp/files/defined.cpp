// Integer arithmetic and conversions whose result C++ leaves open.
#include <poplar/Vertex.hpp>

#include <cstdint>

using namespace poplar;

template <class T> class Divide : public Vertex {
public:
  Input<Vector<T>> x, y;
  Output<Vector<T>> quotient, rest;
  Output<unsigned> zeros;

  bool compute() {
    *zeros = 0;
    for (unsigned i = 0; i != x.size(); ++i) {
      quotient[i] = x[i] / y[i];
      rest[i] = x[i] % y[i];
      if (y[i] == 0) // never so, an optimiser may think after the division
        *zeros = *zeros + 1;
    }
    return true;
  }
};
template class Divide<std::int8_t>;
template class Divide<std::uint8_t>;
template class Divide<std::int16_t>;
template class Divide<std::uint16_t>;
template class Divide<int>;
template class Divide<unsigned>;
template class Divide<long long>;
template class Divide<unsigned long long>;

class DivideVectors : public Vertex {
public:
  Input<Vector<int, VectorLayout::ONE_PTR, 16>> x, y;
  Output<Vector<int, VectorLayout::ONE_PTR, 16>> out;

  bool compute() {
    const int4 *a = reinterpret_cast<const int4 *>(x.data()), *b = reinterpret_cast<const int4 *>(y.data());
    int4 *to = reinterpret_cast<int4 *>(out.data());
    to[0] = a[0] / b[0];
    to[1] = a[0] % b[0];
    return true;
  }
};

class DivideByConstants : public Vertex {
public:
  Input<int> x;
  Output<Vector<int>> out;

  bool compute() {
    int zero = 0;
    const int known = 0;
    out[0] = 5 / zero;
    out[1] = *x / known;
    out[2] = 5 / known;
    out[3] = *x % numWorkers();
    out[4] = (int)3e9f;
    out[5] = (int)__builtin_nanf("");
    return true;
  }
};

class DivideByWorker : public MultiVertex {
public:
  InOut<Vector<int>> x;

  bool compute(unsigned worker) {
    x[worker] = 100 / int(worker) + 100 % int(worker);
    return true;
  }
};

template <class T> class Convert : public Vertex {
public:
  Input<Vector<float>> x;
  Output<Vector<T>> out;

  bool compute() {
    for (unsigned i = 0; i != x.size(); ++i)
      out[i] = T(x[i]);
    return true;
  }
};
template class Convert<std::int8_t>;
template class Convert<std::uint8_t>;
template class Convert<std::int16_t>;
template class Convert<std::uint16_t>;
template class Convert<int>;
template class Convert<unsigned>;
template class Convert<long long>;
template class Convert<unsigned long long>;

template <class T> class Shift : public Vertex {
public:
  Input<Vector<T>> x, count;
  Output<Vector<T>> left, right;

  bool compute() {
    for (unsigned i = 0; i != x.size(); ++i) {
      left[i] = x[i] << count[i];
      right[i] = x[i] >> count[i];
    }
    return true;
  }
};
template class Shift<int>;
template class Shift<unsigned>;
template class Shift<long long>;
