#pragma once

namespace linalg {

extern const float tolerances[3];

float dot(const float *a, const float *b, unsigned n);
void axpy(float alpha, const float *x, float *y, unsigned n);
void matvec(const float *a, const float *x, float *y, unsigned n);

} // namespace linalg
