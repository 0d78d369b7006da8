// Dynamic programming: knapsack, longest common subsequence, coin change.
#include <poplar/Vertex.hpp>
#include <algorithm>

using namespace poplar;

class Knapsack : public Vertex {
public:
  Input<Vector<int>> weight;
  Input<Vector<int>> value;
  InOut<Vector<int>> best; // of each capacity
  bool compute() {
    const int capacity = static_cast<int>(best.size()) - 1;
    std::fill(best.begin(), best.end(), 0);
    for (unsigned i = 0; i < weight.size(); ++i)
      for (int c = capacity; c >= weight[i]; --c)
        best[c] = std::max(best[c], best[c - weight[i]] + value[i]);
    return true;
  }
};

class Lcs : public Vertex {
public:
  Input<Vector<char>> a, b;
  Output<int> length;
  InOut<Vector<int>> row;
  bool compute() {
    for (auto &v : row)
      v = 0;
    for (unsigned i = 0; i < a.size(); ++i) {
      int corner = 0;
      for (unsigned j = 1; j <= b.size(); ++j) {
        const int above = row[j];
        row[j] = a[i] == b[j - 1] ? corner + 1 : std::max(above, row[j - 1]);
        corner = above;
      }
    }
    *length = row[b.size()];
    return true;
  }
};
