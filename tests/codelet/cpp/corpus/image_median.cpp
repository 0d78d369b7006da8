// Median of windows of nine by exchanges; borders copied.
#include <poplar/Vertex.hpp>

#define SWAP(a, b)                                                                                                     \
  if (p[a] > p[b]) {                                                                                                   \
    T t = p[a];                                                                                                        \
    p[a] = p[b];                                                                                                       \
    p[b] = t;                                                                                                          \
  }

template <class T> T median9(T *p) {
  SWAP(1, 2) SWAP(4, 5) SWAP(7, 8) SWAP(0, 1) SWAP(3, 4) SWAP(6, 7) SWAP(1, 2) SWAP(4, 5) SWAP(7, 8)
  SWAP(0, 3) SWAP(5, 8) SWAP(4, 7) SWAP(3, 6) SWAP(1, 4) SWAP(2, 5) SWAP(4, 7) SWAP(4, 2) SWAP(6, 4)
  SWAP(4, 2)
  return p[4];
}

template <class T> class Median3x3 : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<T>> in;
  poplar::Output<poplar::Vector<T>> out;
  unsigned width;
  bool compute() {
    const unsigned height = in.size() / width;
    for (unsigned y = 0; y < height; ++y)
      for (unsigned x = 0; x < width; ++x) {
        if (x == 0 || y == 0 || x + 1 == width || y + 1 == height) {
          out[y * width + x] = in[y * width + x];
          continue;
        }
        T window[9];
        for (unsigned k = 0; k < 9; ++k)
          window[k] = in[(y + k / 3 - 1) * width + x + k % 3 - 1];
        out[y * width + x] = median9(window);
      }
    return true;
  }
};

template class Median3x3<unsigned char>;
template class Median3x3<float>;
