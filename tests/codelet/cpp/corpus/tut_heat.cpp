// Explicit heat equation on the rows of a block, halo rows given apart.
#include <poplar/Vertex.hpp>
#include <cmath>

#define NX (n_columns)

using namespace poplar;

class HeatStep : public Vertex {
public:
  Input<Vector<float>> above;
  Input<Vector<float>> below;
  Vector<Input<Vector<float>>> in;
  Vector<Output<Vector<float>>> out;
  float alpha;

  bool compute() {
    const int rows = in.size();
    for (int y = 0; y < rows; y++) {
      const float *up = y == 0 ? &above[0] : &in[y - 1][0];
      const float *down = y == rows - 1 ? &below[0] : &in[y + 1][0];
      const int n_columns = in[y].size();
      out[y][0] = in[y][0];
      for (int x = 1; x < NX - 1; x++) {
        const float laplace = up[x] + down[x] + in[y][x - 1] + in[y][x + 1] - 4.0f * in[y][x];
        out[y][x] = in[y][x] + alpha * laplace;
      }
      out[y][NX - 1] = in[y][NX - 1];
    }
    return true;
  }
};

class Residual : public Vertex {
public:
  Input<Vector<float, VectorLayout::SPAN, 4>> a, b;
  Output<float> norm;
  bool compute() {
    float worst = 0;
    for (unsigned i = 0; i < a.size(); i++)
      worst = std::fmax(worst, std::fabs(a[i] - b[i]));
    norm = worst;
    return true;
  }
};
