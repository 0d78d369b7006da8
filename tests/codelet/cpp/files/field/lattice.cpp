#include <poplar/Vertex.hpp>
#include <cstddef>
#include <cstdlib>
#include <ipu_intrinsics>
using namespace poplar;
using rptsize_t = unsigned;
constexpr auto NumWorkers = 6u;
const auto NonVecLayout = VectorLayout::ONE_PTR;
typedef struct { unsigned rowFrom, rowTo; } Slice;
enum Dir { MIDDLE = 0, EAST, NORTH, WEST, SOUTH, NE, NW, SW, SE };
float weights[9] = {4.f/9, 1.f/9, 1.f/9, 1.f/9, 1.f/9, 1.f/36, 1.f/36, 1.f/36, 1.f/36};
constexpr int8_t cx[9] = {0,1,0,-1,0,1,-1,-1,1}, cy[9] = {0,0,1,0,-1,1,1,-1,-1};
template <typename T> class CollideVertex : public Vertex {
public:
  Vector<InOut<Vector<T, VectorLayout::SPAN, 8>>, VectorLayout::SPAN> cells;
  Input<Vector<bool>> obstacle;
  T omega;
  bool compute() {
    const auto n = obstacle.size();
    for (std::size_t i = 0; i < n; i++) {
      T rho = 0, ux = 0, uy = 0, f[9];
#pragma unroll
      for (int d = 0; d < 9; d++) { f[d] = cells[d][i]; rho += f[d]; ux += cx[d] * f[d]; uy += cy[d] * f[d]; }
      if (rho <= T(0)) abort();
      ux /= rho; uy /= rho;
      if (obstacle[i]) continue;
      const T usq = ux * ux + uy * uy;
      for (int d = 0; d < 9; d++) { const T cu = cx[d] * ux + cy[d] * uy; cells[d][i] = f[d] + omega * (weights[d] * rho * (1 + 3 * cu + T(4.5) * cu * cu - T(1.5) * usq) - f[d]); }
    }
    return true;
  }
};
template class CollideVertex<float>;
class [[poplar::constraint("elem(*in) != elem(*out)")]] Stream : public MultiVertex {
public:
  Input<Vector<float, VectorLayout::COMPACT_PTR, 8>> in; Output<Vector<float, VectorLayout::COMPACT_PTR, 8>> out; const unsigned width; const unsigned height;
  bool compute(unsigned workerId) {
    for (rptsize_t y = workerId; y < height; y += NumWorkers) { const auto up = (y + 1) % height; for (rptsize_t x = 0; x < width; ++x) out[up * width + x] = in[y * width + x]; }
    return true; }
};
