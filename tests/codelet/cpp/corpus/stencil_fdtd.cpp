// Staggered grids in three dimensions, one step of a wave with seven points.
#include <poplar/Vertex.hpp>

#define IDX(z, y, x) (((z)*ny + (y)) * nx + (x))

class Wave3D : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> now;
  poplar::InOut<poplar::Vector<float>> before; // becomes the next
  const int nx, ny, nz;
  const float c2;

  bool compute() {
    for (int z = 1; z < nz - 1; ++z)
      for (int y = 1; y < ny - 1; ++y)
        for (int x = 1; x < nx - 1; ++x) {
          float lap = -6.f * now[IDX(z, y, x)];
          lap += now[IDX(z - 1, y, x)] + now[IDX(z + 1, y, x)];
          lap += now[IDX(z, y - 1, x)] + now[IDX(z, y + 1, x)];
          lap += now[IDX(z, y, x - 1)] + now[IDX(z, y, x + 1)];
          before[IDX(z, y, x)] = 2.f * now[IDX(z, y, x)] - before[IDX(z, y, x)] + c2 * lap;
        }
    return true;
  }
};

class UpdateE : public poplar::Vertex {
public:
  poplar::InOut<poplar::Vector<float>> ez;
  poplar::Input<poplar::Vector<float>> hy;
  float coefficient;
  bool compute() {
    for (unsigned i = 1; i < ez.size(); i++)
      ez[i] += coefficient * (hy[i] - hy[i - 1]);
    return true;
  }
};
