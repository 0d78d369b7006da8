// Assignment of points to centres and sums of clusters.
#include <poplar/Vertex.hpp>
#include <cfloat>

using namespace poplar;

template <unsigned Dim> class KMeansAssign : public Vertex {
public:
  Input<Vector<float>> points;
  Input<Vector<float>> centres;
  Output<Vector<unsigned>> nearest;
  InOut<Vector<float>> sums;
  InOut<Vector<unsigned>> counts;

  bool compute() {
    for (unsigned p = 0; p < nearest.size(); ++p) {
      float least = FLT_MAX;
      unsigned at = 0;
      for (unsigned c = 0; c < counts.size(); ++c) {
        float d2 = 0;
#pragma unroll
        for (unsigned k = 0; k < Dim; ++k) {
          const float d = points[p * Dim + k] - centres[c * Dim + k];
          d2 += d * d;
        }
        if (d2 < least) {
          least = d2;
          at = c;
        }
      }
      nearest[p] = at;
      ++counts[at];
      for (unsigned k = 0; k < Dim; ++k)
        sums[at * Dim + k] += points[p * Dim + k];
    }
    return true;
  }
};

template class KMeansAssign<2>;
template class KMeansAssign<3>;
