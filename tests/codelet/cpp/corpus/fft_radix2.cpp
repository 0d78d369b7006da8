// Butterflies of one stage, bit reversal, and a whole transform of a tile's signal.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

struct Complex {
  float re, im;
  Complex operator+(const Complex &o) const { return {re + o.re, im + o.im}; }
  Complex operator-(const Complex &o) const { return {re - o.re, im - o.im}; }
  Complex operator*(const Complex &o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
};

class Fft : public Vertex {
public:
  InOut<Vector<float, VectorLayout::ONE_PTR, 8>> signal; // re, im
  unsigned logN;
  bool inverse;

  bool compute() {
    auto *x = reinterpret_cast<Complex *>(&signal[0]);
    const unsigned n = 1u << logN;
    for (unsigned i = 0, j = 0; i < n; ++i) {
      if (i < j) {
        const Complex t = x[i];
        x[i] = x[j];
        x[j] = t;
      }
      unsigned bit = n >> 1;
      for (; bit && (j & bit); bit >>= 1)
        j ^= bit;
      j ^= bit;
    }
    for (unsigned half = 1; half < n; half <<= 1) {
      const float angle = (inverse ? 1 : -1) * static_cast<float>(M_PI) / half;
      for (unsigned k = 0; k < half; ++k) {
        const Complex w{cosf(angle * k), sinf(angle * k)};
        for (unsigned i = k; i < n; i += 2 * half) {
          const Complex t = w * x[i + half];
          x[i + half] = x[i] - t;
          x[i] = x[i] + t;
        }
      }
    }
    return true;
  }
};
