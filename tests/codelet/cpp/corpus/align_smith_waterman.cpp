// Local alignment with linear gaps, one row of scores at a time.
#include <poplar/Vertex.hpp>
#include <algorithm>

class SmithWaterman : public poplar::Vertex {
private:
  static inline short max(short a, short b) { return a > b ? a : b; }

public:
  poplar::Input<poplar::Vector<char>> a;
  poplar::Input<poplar::Vector<char>> b;
  poplar::InOut<poplar::Vector<short, poplar::VectorLayout::ONE_PTR>> row;
  poplar::Output<poplar::Vector<int, poplar::VectorLayout::ONE_PTR>> result; // score, end in a, end in b
  const int match = 0, mismatch = 0, gap = 0;

  bool compute() {
    const unsigned n = b.size();
    for (unsigned j = 0; j <= n; ++j)
      row[j] = 0;
    int best = 0, bi = 0, bj = 0;
    for (unsigned i = 0; i < a.size(); ++i) {
      short diagonal = 0;
      for (unsigned j = 1; j <= n; ++j) {
        const short sub = a[i] == b[j - 1] ? match : mismatch;
        short h = max(0, diagonal + sub);
        h = max(h, row[j] + gap);
        h = max(h, row[j - 1] + gap);
        diagonal = row[j];
        row[j] = h;
        if (h > best) {
          best = h;
          bi = i;
          bj = j - 1;
        }
      }
    }
    result[0] = best;
    result[1] = bi;
    result[2] = bj;
    return true;
  }
};
