// Connected components by union-find with path halving, and triangles by bit sets.
#include <poplar/Vertex.hpp>

using namespace poplar;

class UnionFind : public Vertex {
  int find(int v) {
    while (parent[v] != v) {
      parent[v] = parent[parent[v]];
      v = parent[v];
    }
    return v;
  }

public:
  Input<Vector<int>> edges; // pairs
  InOut<Vector<int>> parent;

  bool compute() {
    for (unsigned v = 0; v < parent.size(); ++v)
      parent[v] = v;
    for (unsigned e = 0; e + 1 < edges.size(); e += 2) {
      int a = find(edges[e]), b = find(edges[e + 1]);
      if (a == b)
        continue;
      if (a < b)
        parent[b] = a;
      else
        parent[a] = b;
    }
    for (unsigned v = 0; v < parent.size(); ++v)
      parent[v] = find(v);
    return true;
  }
};

class Triangles : public Vertex {
public:
  Input<Vector<unsigned>> adjacency; // one word for each node, at most 32
  Output<unsigned> count;
  bool compute() {
    unsigned n = 0;
    for (unsigned i = 0; i < adjacency.size(); ++i)
      for (unsigned j = i + 1; j < adjacency.size(); ++j)
        if (adjacency[i] >> j & 1u)
          n += __builtin_popcount(adjacency[i] & adjacency[j] & ~((2u << j) - 1));
    *count = n;
    return true;
  }
};
