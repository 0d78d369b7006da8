// Electron repulsion over s functions: Boys function by a series or its limit, products of Gaussians.
#include <poplar/Vertex.hpp>
#include <cmath>

#ifndef PI
#define PI 3.14159265358979323846
#endif

namespace eri {

inline float boys0(float t) {
  if (t < 1e-3f)
    return 1.0f - t / 3.0f;
  if (t > 30.0f)
    return 0.5f * sqrtf(static_cast<float>(PI) / t);
  const float r = sqrtf(t);
  return 0.5f * sqrtf(static_cast<float>(PI)) / r * erff(r);
}

class Ssss : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> exponents;    // four of each quartet
  poplar::Input<poplar::Vector<float>> centres;      // twelve of each quartet
  poplar::Output<poplar::Vector<float>> integrals;

  bool compute() {
    for (unsigned q = 0; q < integrals.size(); ++q) {
      const float a = exponents[4 * q], b = exponents[4 * q + 1], c = exponents[4 * q + 2], d = exponents[4 * q + 3];
      const float *r = &centres[12 * q];
      const float p = a + b, s = c + d;
      float ab2 = 0, cd2 = 0, pq2 = 0;
      for (int k = 0; k < 3; ++k) {
        const float ab = r[k] - r[3 + k], cd = r[6 + k] - r[9 + k];
        const float P = (a * r[k] + b * r[3 + k]) / p, Q = (c * r[6 + k] + d * r[9 + k]) / s;
        ab2 += ab * ab;
        cd2 += cd * cd;
        pq2 += (P - Q) * (P - Q);
      }
      const float rho = p * s / (p + s);
      const float prefactor = 2.0 * std::pow(static_cast<float>(PI), 2.5f) / (p * s * std::sqrt(p + s));
      integrals[q] = prefactor * expf(-a * b / p * ab2 - c * d / s * cd2) * boys0(rho * pq2);
    }
    return true;
  }
};

} // namespace eri
