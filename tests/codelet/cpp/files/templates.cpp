// Templates, namespaces, inheritance, and what C++ programs are made of.
#include <poplar/Vertex.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

using namespace poplar;

namespace ops {

enum class Kind { ADD, SUBTRACT, MULTIPLY };
enum Rounding { DOWN, UP = 7 };

template <Kind K, class T> struct Apply;
template <class T> struct Apply<Kind::ADD, T> {
  static T run(T a, T b) { return a + b; }
};
template <class T> struct Apply<Kind::SUBTRACT, T> {
  static T run(T a, T b) { return a - b; }
};
template <class T> struct Apply<Kind::MULTIPLY, T> {
  static T run(T a, T b) { return a * b; }
};

template <Kind K, class T>
class [[poplar::constraint("elem(*a) != elem(*b)", "region(*a) != region(*out)")]] Binary : public Vertex {
public:
  Input<Vector<T>> a;
  Input<Vector<T, VectorLayout::ONE_PTR>> b;
  Output<Vector<T, VectorLayout::ONE_PTR>> out;

  bool compute() {
    for (unsigned i = 0; i < a.size(); ++i)
      out[i] = Apply<K, T>::run(a[i], b[i]);
    return true;
  }
};
template class Binary<Kind::ADD, float>;
template class Binary<Kind::SUBTRACT, int>;
template class Binary<Kind::MULTIPLY, half>;

namespace detail {
template <class T, bool Negate, unsigned Factor = 3, Rounding R = UP> class Affine : public Vertex {
  static const unsigned offset = 5;

public:
  InOut<Vector<T>> data;

  void compute();
};

template <class T, bool Negate, unsigned Factor, Rounding R> void Affine<T, Negate, Factor, R>::compute() {
  for (unsigned i = 0; i < data.size(); ++i) {
    T value = data[i] * T(Factor) + T(offset) + T(R);
    data[i] = Negate ? -value : value;
  }
}
template class Affine<float, true>;
template class Affine<int, false, 2, DOWN>;
} // namespace detail
} // namespace ops

template <class From, class To> class Cast : public Vertex {
public:
  Input<Vector<From>> in;
  Output<Vector<To>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = static_cast<To>(in[i]);
    return true;
  }
};
template class Cast<float, half>;
template class Cast<half, float>;
template class Cast<unsigned int, float>;
template class Cast<float, int>;
template class Cast<bool, unsigned char>;

template <class T> class Specialised : public Vertex {
public:
  Output<Vector<float>> out;
  bool compute() {
    out[0] = 1;
    return true;
  }
};
template <> class Specialised<half> : public Vertex {
public:
  Output<Vector<float>> out;
  float value;
  bool compute() {
    out[0] = value;
    return true;
  }
};
template class Specialised<int>;

template <class T> class WithData : public Vertex {
public:
  Input<Vector<T>> in;
  Output<Vector<T>> out;

protected:
  T twice(T x) const { return x + x; }
};

class Doubled : public WithData<float> {
public:
  unsigned skip;
  bool compute() {
    for (unsigned i = skip; i < in.size(); ++i)
      out[i] = twice(in[i]);
    return true;
  }
};

template <class T> class Reversed : public WithData<T> {
public:
  bool compute() {
    const unsigned n = this->in.size();
    for (unsigned i = 0; i < n; ++i)
      this->out[n - 1 - i] = this->in[i];
    return true;
  }
};
class ReversedInts : public Reversed<int> {
public:
  const int bias;
};

struct Pair {
  float low, high;
};

static Pair extent(const float *begin, const float *end) {
  Pair pair{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()};
  std::for_each(begin, end, [&pair](float x) {
    pair.low = std::min(pair.low, x);
    pair.high = std::max(pair.high, x);
  });
  return pair;
}

class Histogram : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<unsigned>> out;

  bool compute() {
    std::array<unsigned, 8> bins{};
    const auto [low, high] = extent(&in[0], &in[0] + in.size());
    const auto bin = [low = low, scale = 8.0f / (high - low)](float x) {
      return std::min(7u, unsigned((x - low) * scale));
    };
    for (float x : in)
      ++bins[bin(x)];
    std::copy(bins.begin(), bins.end(), out.begin());
    return true;
  }
};

class Sorted : public Vertex {
public:
  InOut<Vector<int>> data;

  bool compute() {
    for (unsigned i = 1; i < data.size(); ++i)
      for (unsigned j = i; j > 0 && data[j - 1] > data[j]; --j)
        std::swap(data[j - 1], data[j]);
    return true;
  }
};

class MathFunctions : public Vertex {
public:
  Input<Vector<float>> in;
  Vector<Output<Vector<float>>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i) {
      const float x = in[i];
      out[0][i] = std::exp(x);
      out[1][i] = std::log(std::fabs(x) + 1.0f);
      out[2][i] = std::tanh(x);
      out[3][i] = std::sqrt(std::abs(x));
      out[4][i] = std::sin(x) + cosf(x);
      out[5][i] = std::pow(std::fabs(x), 1.5f);
      out[6][i] = std::floor(x) + std::ceil(x);
      out[7][i] = std::atan2(x, 2.0f) + std::fmod(x, 0.7f);
      out[8][i] = std::erf(x);
    }
    return true;
  }
};

class Integers : public Vertex {
public:
  Input<Vector<int>> a;
  Input<Vector<int>> b;
  Vector<Output<Vector<int>>> out;

  bool compute() {
    for (unsigned i = 0; i < a.size(); ++i) {
      out[0][i] = a[i] / b[i];
      out[1][i] = a[i] % b[i];
      out[2][i] = (a[i] << 3) ^ (b[i] >> 1);
      out[3][i] = std::clamp(a[i], -5, 5);
      switch (a[i] & 3) {
      case 0: out[4][i] = 7; break;
      case 1: out[4][i] = -7; break;
      case 2: out[4][i] = b[i]; break;
      default: out[4][i] = 0;
      }
    }
    return true;
  }
};

class NarrowedConstants : public Vertex {
public:
  InOut<Vector<float>> x;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      x[i] = 0.5 * x[i];
    return true;
  }
};
