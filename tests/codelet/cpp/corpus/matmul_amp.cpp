// Products of small matrices: by the accumulating units, by dot products, by blocks in registers.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>
#include <ipudef.h>

using namespace poplar;

class MatmulAmp : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> a;
  Input<Vector<float, VectorLayout::ONE_PTR, 8, true>> b;
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> c;
  unsigned n;
  bool compute() {
    float2 sum = {0, 0};
    for (unsigned i = 0; i < n; ++i)
      sum = __builtin_ipu_f32sisov2amp(a[i], sum, 0);
    c[0] = sum[0];
    return true;
  }
};

template <typename T, unsigned M = 4, unsigned N = 4> class MatmulBlocked : public Vertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> a; // [rows][inner]
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> b; // [inner][columns]
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> c;
  const unsigned short rows, columns, inner;

  bool compute() {
    for (unsigned i = 0; i < rows; i += M)
      for (unsigned j = 0; j < columns; j += N) {
        T block[M][N] = {};
        for (unsigned k = 0; k < inner; ++k)
          for (unsigned m = 0; m < M; ++m)
            for (unsigned n = 0; n < N; ++n)
              block[m][n] += a[(i + m) * inner + k] * b[k * columns + j + n];
        for (unsigned m = 0; m < M; ++m)
          for (unsigned n = 0; n < N; ++n)
            c[(i + m) * columns + j + n] = block[m][n];
      }
    return true;
  }
};

template class MatmulBlocked<float>;
template class MatmulBlocked<float, 2>;
template class MatmulBlocked<float, 2, 2>;
template class MatmulBlocked<int, 1, 1>;
