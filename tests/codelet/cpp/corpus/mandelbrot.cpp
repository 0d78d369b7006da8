// Escape counts of a strip of the plane.
#include <poplar/Vertex.hpp>
#include <ipu_builtins.h>

class Mandelbrot : public poplar::MultiVertex {
public:
  poplar::Output<poplar::Vector<unsigned short, poplar::VectorLayout::ONE_PTR>> counts;
  const float left, top, step;
  const unsigned width, height, limit;

  bool compute(unsigned workerId) {
    for (unsigned p = workerId; p < width * height; p += numWorkers()) {
      const float cr = left + (p % width) * step, ci = top - (p / width) * step;
      float zr = 0.f, zi = 0.f;
      unsigned n = 0;
      while (n < limit) {
        const float rr = zr * zr, ii = zi * zi;
        if (rr + ii > 4.f)
          break;
        zi = 2.f * zr * zi + ci;
        zr = rr - ii + cr;
        ++n;
      }
      counts[p] = n;
    }
    return true;
  }
};
