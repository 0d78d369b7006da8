// Ragged rows in a compact list, in and out, and rows of rows by offsets.
#include <poplar/Vertex.hpp>

using namespace poplar;

class RaggedScale : public Vertex {
public:
  Input<VectorList<float, VectorListLayout::DELTAN>> in;
  Output<VectorList<float, VectorListLayout::DELTANELEMENTS>> out;
  float by;
  bool compute() {
    for (unsigned r = 0; r < in.size(); ++r)
      for (unsigned i = 0; i < in[r].size(); ++i)
        out[r][i] = in[r][i] * by;
    return true;
  }
};

class RaggedMax : public Vertex {
public:
  Input<VectorList<int, VectorListLayout::COMPACT_DELTAN>> in;
  Output<Vector<int>> most;
  bool compute() {
    for (unsigned r = 0; r < in.size(); ++r) {
      int m = in[r][0];
      for (unsigned i = 1; i < in[r].size(); ++i)
        m = in[r][i] > m ? in[r][i] : m;
      most[r] = m;
    }
    return true;
  }
};

class GatherRows : public Vertex {
public:
  Vector<Input<Vector<float>>> rows;
  Input<Vector<unsigned>> order;
  Vector<Output<Vector<float>>> out;
  bool compute() {
    for (unsigned i = 0; i < order->size(); ++i) {
      const auto &row = rows[order[i]];
      for (unsigned j = 0; j < row.size(); ++j)
        out[i][j] = row[j];
    }
    return true;
  }
};
