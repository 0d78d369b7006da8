// Bundle adjustment: rotation by an axis and an angle, a pinhole, residuals and a damped step.
#include <poplar/Vertex.hpp>
#include <cmath>

using namespace poplar;

static inline void rotate(const float *w, const float *p, float *out) {
  const float theta2 = w[0] * w[0] + w[1] * w[1] + w[2] * w[2];
  if (theta2 > 1e-12f) {
    const float theta = sqrtf(theta2), c = cosf(theta), s = sinf(theta), inv = 1.0f / theta;
    const float k[3] = {w[0] * inv, w[1] * inv, w[2] * inv};
    const float cross[3] = {k[1] * p[2] - k[2] * p[1], k[2] * p[0] - k[0] * p[2], k[0] * p[1] - k[1] * p[0]};
    const float dot = (k[0] * p[0] + k[1] * p[1] + k[2] * p[2]) * (1.0f - c);
    for (int i = 0; i < 3; ++i)
      out[i] = p[i] * c + cross[i] * s + k[i] * dot;
  } else {
    for (int i = 0; i < 3; ++i)
      out[i] = p[i];
  }
}

class Reprojection : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> camera; // rotation, translation, focal length
  Vector<Input<Vector<float, VectorLayout::ONE_PTR>>> points;
  Vector<Input<Vector<float, VectorLayout::ONE_PTR>>> observed;
  Output<Vector<float>> residuals;

  bool compute() {
    for (unsigned i = 0; i < points.size(); ++i) {
      float p[3];
      rotate(&camera[0], &points[i][0], p);
      for (int k = 0; k < 3; ++k)
        p[k] += camera[3 + k];
      residuals[2 * i] = camera[6] * p[0] / p[2] - observed[i][0];
      residuals[2 * i + 1] = camera[6] * p[1] / p[2] - observed[i][1];
    }
    return true;
  }
};

// messages between Gaussian beliefs of two variables, marginalised by hand
class GbpMessage : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> factorEta, factorLambda, in;
  InOut<Vector<float, VectorLayout::ONE_PTR>> out;
  float damping;
  bool compute() {
    const float laa = factorLambda[0], lab = factorLambda[1], lbb = factorLambda[3] + in[1];
    const float eb = factorEta[1] + in[0];
    const float eta = factorEta[0] - lab / lbb * eb, lambda = laa - lab * lab / lbb;
    out[0] = damping * out[0] + (1.0f - damping) * eta;
    out[1] = damping * out[1] + (1.0f - damping) * lambda;
    return true;
  }
};
