// A Kalman filter with a small matrix template; dimensions are template arguments.
#include <poplar/Vertex.hpp>

using namespace poplar;

template <unsigned R, unsigned C> struct Matrix {
  float m[R * C];
  float &operator()(unsigned r, unsigned c) { return m[r * C + c]; }
  const float &operator()(unsigned r, unsigned c) const { return m[r * C + c]; }
  template <unsigned K> Matrix<R, K> operator*(const Matrix<C, K> &o) const {
    Matrix<R, K> out{};
    for (unsigned i = 0; i < R; ++i)
      for (unsigned j = 0; j < K; ++j)
        for (unsigned k = 0; k < C; ++k)
          out(i, j) += (*this)(i, k) * o(k, j);
    return out;
  }
  Matrix operator+(const Matrix &o) const {
    Matrix out;
    for (unsigned i = 0; i < R * C; ++i)
      out.m[i] = m[i] + o.m[i];
    return out;
  }
  Matrix operator-(const Matrix &o) const {
    Matrix out;
    for (unsigned i = 0; i < R * C; ++i)
      out.m[i] = m[i] - o.m[i];
    return out;
  }
  Matrix<C, R> transposed() const {
    Matrix<C, R> out;
    for (unsigned i = 0; i < R; ++i)
      for (unsigned j = 0; j < C; ++j)
        out(j, i) = (*this)(i, j);
    return out;
  }
};

template <unsigned N> class KalmanTrack : public Vertex {
public:
  InOut<Vector<float, VectorLayout::ONE_PTR>> x;
  InOut<Vector<float, VectorLayout::ONE_PTR>> P;
  Input<Vector<float, VectorLayout::ONE_PTR>> F;
  Input<Vector<float>> z; // measurements of the first component, in order
  const float q, r;

  bool compute() {
    auto &state = *reinterpret_cast<Matrix<N, 1> *>(&x[0]);
    auto &cov = *reinterpret_cast<Matrix<N, N> *>(&P[0]);
    const auto &f = *reinterpret_cast<const Matrix<N, N> *>(&F[0]);
    for (const auto &measured : z) {
      state = f * state;
      cov = f * cov * f.transposed();
      for (unsigned i = 0; i < N; ++i)
        cov(i, i) += q;
      const float s = cov(0, 0) + r, residual = measured - state(0, 0);
      Matrix<N, 1> gain;
      for (unsigned i = 0; i < N; ++i)
        gain(i, 0) = cov(i, 0) / s;
      Matrix<1, N> top;
      for (unsigned i = 0; i < N; ++i) {
        top(0, i) = cov(0, i);
        state(i, 0) += gain(i, 0) * residual;
      }
      cov = cov - gain * top;
    }
    return true;
  }
};

template class KalmanTrack<2>;
template class KalmanTrack<4>;
