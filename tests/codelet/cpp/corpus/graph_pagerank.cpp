// PageRank by pulling along incoming edges.
#include <poplar/Vertex.hpp>
#include <cmath>

class PageRankPull : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> rank;
  poplar::Input<poplar::Vector<float>> invOutDegree;
  poplar::Input<poplar::Vector<unsigned>> row_ptr;
  poplar::Input<poplar::Vector<unsigned, poplar::VectorLayout::ONE_PTR>> col_idx;
  poplar::Output<poplar::Vector<float>> newRank;
  poplar::Output<float> error;
  float damping;
  unsigned num_nodes;
  unsigned first;

  bool compute() {
    const float base = (1.0 - damping) / num_nodes;
    float err = 0;
    for (unsigned v = 0; v < newRank.size(); ++v) {
      float sum = 0.0f;
      for (unsigned e = row_ptr[v]; e != row_ptr[v + 1]; ++e)
        sum += rank[col_idx[e]] * invOutDegree[col_idx[e]];
      newRank[v] = base + damping * sum;
      err += std::abs(newRank[v] - rank[first + v]);
    }
    *error = err;
    return true;
  }
};
