// Edges of a grey image in bytes.
#include <poplar/Vertex.hpp>
#include <cmath>
#include <cstdlib>

class Sobel : public poplar::Vertex {
public:
  poplar::Vector<poplar::Input<poplar::Vector<unsigned char>>> rows;
  poplar::Vector<poplar::Output<poplar::Vector<unsigned char>>> out;
  bool compute() {
    static const int gx[3][3] = {{-1, 0, 1}, {-2, 0, 2}, {-1, 0, 1}};
    static const int gy[3][3] = {{-1, -2, -1}, {0, 0, 0}, {1, 2, 1}};
    for (unsigned y = 1; y + 1 < rows.size(); ++y)
      for (unsigned x = 1; x + 1 < rows[y].size(); ++x) {
        int sx = 0, sy = 0;
        for (int j = -1; j <= 1; ++j)
          for (int i = -1; i <= 1; ++i) {
            sx += gx[j + 1][i + 1] * rows[y + j][x + i];
            sy += gy[j + 1][i + 1] * rows[y + j][x + i];
          }
        const int magnitude = std::sqrt(sx * sx + sy * sy);
        out[y - 1][x - 1] = magnitude > 255 ? 255 : magnitude;
      }
    return true;
  }
};

class Luminance : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<unsigned char>> rgb;
  poplar::Output<poplar::Vector<unsigned char>> grey;
  bool compute() {
    for (unsigned i = 0; i < grey.size(); ++i)
      grey[i] = (77 * rgb[3 * i] + 150 * rgb[3 * i + 1] + 29 * rgb[3 * i + 2]) >> 8;
    return true;
  }
};
