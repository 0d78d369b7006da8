// Codes that compute in double without a thought, as programs from elsewhere do; and 64-bit integers by other names.
#include <poplar/Vertex.hpp>

#include <cfloat>
#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>

using namespace poplar;

class Poly : public Vertex {
public:
  InOut<Vector<float>> x;
  Input<int> n;

  bool compute() {
    const int k = *n;
    for (std::size_t i = 0; i < x->size(); ++i)
      x[i] = 0.1 * x[i] + std::pow(x[i], 2) - std::sqrt(k) / 3.0;
    return true;
  }
};

class Sums : public Vertex {
public:
  Input<Vector<double>> in;
  Output<Vector<double>> out;

  bool compute() {
    static const double weights[] = {0.1, 0.2, 0.3, 1e-300};
    double total = 0.0, least = std::numeric_limits<double>::max(), bins[4] = {0, 0, 0, 0};
    for (unsigned i = 0; i < in.size(); ++i) {
      total += in[i];
      least = std::min<double>(least, in[i]);
      bins[i % 4] += in[i] * weights[i % 4];
    }
    out[0] = total;
    out[1] = least;
    for (int i = 0; i < 4; ++i)
      out[2 + i] = bins[i];
    out[6] = DBL_MAX;
    out[7] = static_cast<long double>(total) * 0.7L;
    return true;
  }
};

struct Spin {
  double re, im;
};
static Spin operator*(Spin a, Spin b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

class Turn : public Vertex {
public:
  Output<Vector<float>> out;
  Input<Vector<float>> by;
  unsigned long steps;
  double phase;

  bool compute() {
    Spin z{1, 0};
    std::complex<double> w(1, 0);
    for (unsigned long i = 0; i < steps; ++i) {
      z = z * Spin{by[0], by[1]};
      w *= std::complex<double>(by[0], by[1]);
    }
    out[0] = z.re, out[1] = z.im, out[2] = w.real(), out[3] = w.imag();
    phase += 0.1;
    return true;
  }
};

class Whole : public Vertex {
public:
  Input<Vector<std::size_t>> index;
  Input<std::size_t> first;
  Output<Vector<long>> out;
  Vector<unsigned long> kept;
  std::size_t count;
  long down;

  bool compute() {
    for (std::size_t i = 0; i < index.size(); ++i)
      out[i] = static_cast<long>(index[i] + *first + kept[i]) - 10;
    count += 1;
    down -= 1;
    return true;
  }
};

class Fields : public Vertex { // doubles of two classes in one: halves that are handed on in 64 bits are not touched
public:
  Input<Vector<half, VectorLayout::SPAN, 8>> in;
  Output<Vector<half, VectorLayout::SPAN, 8>> out;
  bool flip;

  static half4 mixed(half4 a, half4 b, bool flip) { return flip ? b : a; }

  bool compute() {
    const half4 *from = reinterpret_cast<const half4 *>(&in[0]);
    half4 *to = reinterpret_cast<half4 *>(&out[0]);
    for (unsigned i = 0; i + 1 < in.size() / 4; i += 2) {
      to[i] = mixed(from[i], from[i + 1], flip);
      to[i + 1] = from[i + 1] * half(0.5 * std::sqrt(4));
    }
    return true;
  }
};

class Conversions : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<int>> whole;
  Output<Vector<bool>> flags;
  Output<Vector<float>> out;

  bool compute() {
    const double x = in[0], y = in[1];
    whole[0] = static_cast<int>(x * 3.7);
    whole[1] = std::lround(y * 2.5);
    whole[2] = static_cast<int>(std::floor(-0.5 + x));
    flags[0] = x > y;
    flags[1] = std::isnan(x / 0.0 * 0.0);
    flags[2] = std::signbit(-y);
    out[0] = std::atan2(y, x);
    out[1] = std::exp(-x * x / 2.0) / std::sqrt(2.0 * M_PI);
    out[2] = std::fmod(x, 0.7);
    out[3] = std::abs(-y) + std::hypot(x, y);
    return true;
  }
};
