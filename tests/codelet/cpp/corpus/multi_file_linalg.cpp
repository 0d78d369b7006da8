// Helpers of multi_file_solver.cpp, no vertex among them.
#include "multi_file_linalg.hpp"

namespace linalg {

const float tolerances[3] = {0.0f, 1e-12f, 1e-6f};

static float square(float v) { return v + v; } // another function than the one of that name beside

float dot(const float *a, const float *b, unsigned n) {
  float s = square(0);
  for (unsigned i = 0; i < n; ++i)
    s += a[i] * b[i];
  return s;
}

void axpy(float alpha, const float *x, float *y, unsigned n) {
  for (unsigned i = 0; i < n; ++i)
    y[i] += alpha * x[i];
}

void matvec(const float *a, const float *x, float *y, unsigned n) {
  for (unsigned i = 0; i < n; ++i)
    y[i] = dot(a + i * n, x, n);
}

} // namespace linalg
