// A std::vector in one class, arrays in the other.
#include <poplar/Vertex.hpp>
#include <array>
#include <vector>

using namespace poplar;

class WithVector : public Vertex {
public:
  Input<Vector<int>> in;
  Output<int> out;
  bool compute() {
    std::vector<int> seen;
    for (auto v : in)
      seen.push_back(v);
    *out = seen.size();
    return true;
  }
};

class Mode : public Vertex {
public:
  Input<Vector<unsigned char>> in;
  Output<int> out;
  bool compute() {
    std::array<int, 256> counts{};
    for (auto v : in)
      ++counts[v];
    int best = 0;
    for (int i = 1; i < 256; ++i)
      if (counts[i] > counts[best])
        best = i;
    *out = best;
    return true;
  }
};
