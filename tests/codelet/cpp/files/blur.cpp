// A 3 x 3 Gaussian blur of pixels of four channels, in the shapes that stencil codes have.
#include <ipudef.h>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

template <typename T, typename V>
inline V stencil(V nw, V n, V ne, V w, V m, V e, V sw, V s, V se) {
  return T(1.f / 16) * (nw + ne + sw + se) + T(4.f / 16) * m + T(2.f / 16) * (e + w + s + n);
}

// The block with its border in one piece; C vectors per pixel.
template <typename T, typename V, unsigned C> class BlurBlock : public Vertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  unsigned width, height;

  bool compute() {
    const auto *from = reinterpret_cast<const V *>(&in[0]);
    auto *to = reinterpret_cast<V *>(&out[0]);
    const unsigned pitch = width + 2;
    for (unsigned y = 0; y < height; y++)
      for (unsigned x = 0; x < width; x++)
        for (unsigned c = 0; c < C; c++) {
          const V *a = from + (y * pitch + x) * C + c, *b = a + pitch * C, *d = b + pitch * C;
          to[(y * width + x) * C + c] = T(0.0625f) * (a[0] + a[2 * C] + d[0] + d[2 * C]) +
                                        T(0.125f) * (a[C] + b[0] + b[2 * C] + d[C]) + T(0.25f) * b[C];
        }
    return true;
  }
};
template class BlurBlock<half, half4, 1>;
template class BlurBlock<float, float2, 2>;
template class BlurBlock<float, float, 4>;

// Rows of a field, dealt out to the workers.
template <typename T, typename V, unsigned C> class BlurRows : public MultiVertex {
public:
  Vector<Input<Vector<T, VectorLayout::SPAN, 8>>> in;
  Vector<Output<Vector<T, VectorLayout::SPAN, 8>>> out;

  bool compute(unsigned worker) {
    for (unsigned y = worker; y < out.size(); y += 6) {
      const auto *a = reinterpret_cast<const V *>(&in[y][0]), *b = reinterpret_cast<const V *>(&in[y + 1][0]),
                 *d = reinterpret_cast<const V *>(&in[y + 2][0]);
      auto *to = reinterpret_cast<V *>(&out[y][0]);
      const unsigned n = out[y].size() / (sizeof(V) / sizeof(T));
      for (unsigned x = 0; x < n; x++)
        to[x] = stencil<T, V>(a[x], a[x + C], a[x + 2 * C], b[x], b[x + C], b[x + 2 * C], d[x], d[x + C], d[x + 2 * C]);
    }
    return true;
  }
};
template class BlurRows<half, half4, 1>;
template class BlurRows<float, float2, 2>;
template class BlurRows<float, float, 4>;

// The block alone, and what lies around it in fields of its own: four corners, four edges.
template <typename T, typename V, unsigned C> class BlurHalo : public Vertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> in, n, s, e, w, nw, ne, sw, se;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  unsigned width, height;

  static const V *of(const T *from, int at) { return reinterpret_cast<const V *>(from) + at; }

  bool compute() {
    const int nx = width, ny = height, c1 = C;
    const T *i = &in[0], *north = &n[0], *south = &s[0], *east = &e[0], *west = &w[0];
    auto *to = reinterpret_cast<V *>(&out[0]);
    const auto at = [&](int x, int y, int c) { return (y * nx + x) * c1 + c; };
    const auto pixel = [&](int x, int y, int c) { return *of(i, at(x, y, c)); };
    const auto up = [&](int x, int c) { return *of(north, x * c1 + c); };
    const auto down = [&](int x, int c) { return *of(south, x * c1 + c); };
    const auto left = [&](int y, int c) { return *of(west, y * c1 + c); };
    const auto right = [&](int y, int c) { return *of(east, y * c1 + c); };
    const int r = nx - 1, b = ny - 1;
    for (int c = 0; c < c1; c++) {
      to[at(0, 0, c)] = stencil<T, V>(*of(&nw[0], c), up(0, c), up(1, c), left(0, c), pixel(0, 0, c), pixel(1, 0, c),
                                      left(1, c), pixel(0, 1, c), pixel(1, 1, c));
      to[at(r, 0, c)] = stencil<T, V>(up(r - 1, c), up(r, c), *of(&ne[0], c), pixel(r - 1, 0, c), pixel(r, 0, c),
                                      right(0, c), pixel(r - 1, 1, c), pixel(r, 1, c), right(1, c));
      to[at(0, b, c)] = stencil<T, V>(left(b - 1, c), pixel(0, b - 1, c), pixel(1, b - 1, c), left(b, c),
                                      pixel(0, b, c), pixel(1, b, c), *of(&sw[0], c), down(0, c), down(1, c));
      to[at(r, b, c)] = stencil<T, V>(pixel(r - 1, b - 1, c), pixel(r, b - 1, c), right(b - 1, c), pixel(r - 1, b, c),
                                      pixel(r, b, c), right(b, c), down(r - 1, c), down(r, c), *of(&se[0], c));
    }
    for (int x = 1; x < r; x++)
      for (int c = 0; c < c1; c++)
        to[at(x, 0, c)] = stencil<T, V>(up(x - 1, c), up(x, c), up(x + 1, c), pixel(x - 1, 0, c), pixel(x, 0, c),
                                        pixel(x + 1, 0, c), pixel(x - 1, 1, c), pixel(x, 1, c), pixel(x + 1, 1, c));
    for (int x = 1; x < r; x++)
      for (int c = 0; c < c1; c++)
        to[at(x, b, c)] = stencil<T, V>(pixel(x - 1, b - 1, c), pixel(x, b - 1, c), pixel(x + 1, b - 1, c),
                                        pixel(x - 1, b, c), pixel(x, b, c), pixel(x + 1, b, c), down(x - 1, c),
                                        down(x, c), down(x + 1, c));
    for (int y = 1; y < b; y++) {
      for (int c = 0; c < c1; c++)
        to[at(0, y, c)] = stencil<T, V>(left(y - 1, c), pixel(0, y - 1, c), pixel(1, y - 1, c), left(y, c),
                                        pixel(0, y, c), pixel(1, y, c), left(y + 1, c), pixel(0, y + 1, c),
                                        pixel(1, y + 1, c));
      for (int x = 1; x < r; x++)
        for (int c = 0; c < c1; c++)
          to[at(x, y, c)] = stencil<T, V>(pixel(x - 1, y - 1, c), pixel(x, y - 1, c), pixel(x + 1, y - 1, c),
                                          pixel(x - 1, y, c), pixel(x, y, c), pixel(x + 1, y, c),
                                          pixel(x - 1, y + 1, c), pixel(x, y + 1, c), pixel(x + 1, y + 1, c));
      for (int c = 0; c < c1; c++)
        to[at(r, y, c)] = stencil<T, V>(pixel(r - 1, y - 1, c), pixel(r, y - 1, c), right(y - 1, c),
                                        pixel(r - 1, y, c), pixel(r, y, c), right(y, c), pixel(r - 1, y + 1, c),
                                        pixel(r, y + 1, c), right(y + 1, c));
    }
    return true;
  }
};
template class BlurHalo<half, half4, 1>;
template class BlurHalo<float, float2, 2>;
template class BlurHalo<float, float, 4>;
