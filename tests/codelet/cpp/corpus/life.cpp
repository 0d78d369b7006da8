// The game of life: cells in bytes, and 32 cells in a word.
#include <poplar/Vertex.hpp>

class LifeBytes : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<unsigned char>> in;
  poplar::Output<poplar::Vector<unsigned char>> out;
  int w, h;
  bool compute() {
    for (int y = 0; y < h; ++y)
      for (int x = 0; x < w; ++x) {
        int alive = 0;
        for (int dy : {-1, 0, 1})
          for (int dx : {-1, 0, 1})
            if (dx || dy)
              alive += in[(y + dy + h) % h * w + (x + dx + w) % w];
        out[y * w + x] = alive == 3 || (alive == 2 && in[y * w + x]);
      }
    return true;
  }
};

class LifeWords : public poplar::Vertex {
  static unsigned left(unsigned v) { return v << 1 | v >> 31; }
  static unsigned right(unsigned v) { return v >> 1 | v << 31; }
  static void add(unsigned v, unsigned &ones, unsigned &twos, unsigned &fours) {
    const unsigned carry = ones & v, more = twos & carry;
    ones ^= v;
    twos ^= carry;
    fours |= more;
  }

public:
  poplar::Input<poplar::Vector<unsigned>> rows; // a torus 32 wide
  poplar::Output<poplar::Vector<unsigned>> next;
  bool compute() {
    const unsigned n = rows.size();
    for (unsigned y = 0; y < n; ++y) {
      const unsigned up = rows[(y + n - 1) % n], mid = rows[y], down = rows[(y + 1) % n];
      unsigned ones = 0, twos = 0, fours = 0;
      for (unsigned v : {left(up), up, right(up), left(mid), right(mid), left(down), down, right(down)})
        add(v, ones, twos, fours);
      next[y] = twos & ~fours & (ones | mid);
    }
    return true;
  }
};
