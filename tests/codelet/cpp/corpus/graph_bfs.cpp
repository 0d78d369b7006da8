// Level-synchronous breadth-first search over a tile's rows of a graph in compressed form.
#include <poplar/Vertex.hpp>

using namespace poplar;

class BfsStep : public Vertex {
public:
  Input<Vector<int>> rowPtr;
  Input<Vector<int>> columns;
  Input<Vector<unsigned char>> frontier; // of the whole graph
  InOut<Vector<int>> level;              // of own vertices
  Output<Vector<unsigned char>> next;
  Output<bool> changed;
  Input<int> depth;

  bool compute() {
    bool any = false;
    for (unsigned v = 0; v < level.size(); ++v) {
      next[v] = 0;
      if (level[v] >= 0)
        continue;
      for (int e = rowPtr[v]; e < rowPtr[v + 1]; ++e) {
        if (frontier[columns[e]]) {
          level[v] = *depth + 1;
          next[v] = 1;
          any = true;
          break;
        }
      }
    }
    *changed = any;
    return true;
  }
};

class AnyTrue : public Vertex {
public:
  Vector<Input<bool>> in;
  Output<bool> out;
  bool compute() {
    bool any = false;
    for (unsigned i = 0; i < in.size(); ++i)
      any = any || in[i];
    out = any;
    return true;
  }
};
