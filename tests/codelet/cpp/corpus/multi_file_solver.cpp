// Conjugate gradients with helpers that multi_file_linalg.cpp defines; both have a static `square` of their own.
#include "multi_file_linalg.hpp"
#include <poplar/Vertex.hpp>

using namespace poplar;

static float square(float v) { return v * v; }

class ConjugateGradient : public Vertex {
public:
  Input<Vector<float>> a;
  Input<Vector<float>> b;
  InOut<Vector<float>> x, r, p, ap;
  Output<float> residual;
  unsigned iterations;

  bool compute() {
    const unsigned n = b.size();
    linalg::matvec(&a[0], &x[0], &r[0], n);
    for (unsigned i = 0; i < n; ++i)
      p[i] = r[i] = b[i] - r[i];
    float rr = linalg::dot(&r[0], &r[0], n);
    for (unsigned k = 0; k < iterations && rr > linalg::tolerances[1]; ++k) {
      linalg::matvec(&a[0], &p[0], &ap[0], n);
      const float alpha = rr / linalg::dot(&p[0], &ap[0], n);
      linalg::axpy(alpha, &p[0], &x[0], n);
      linalg::axpy(-alpha, &ap[0], &r[0], n);
      const float next = linalg::dot(&r[0], &r[0], n);
      for (unsigned i = 0; i < n; ++i)
        p[i] = r[i] + next / rr * p[i];
      rr = next;
    }
    float s = 0;
    for (unsigned i = 0; i < n; ++i)
      s += square(r[i]);
    *residual = s;
    return true;
  }
};
