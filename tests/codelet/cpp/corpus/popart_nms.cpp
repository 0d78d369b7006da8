// Non-maximum suppression: the best remaining box, then those that it covers.
#include <algorithm>
#include <limits>
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace nms {

struct Box {
  float y0, x0, y1, x1;
  float area() const { return (y1 - y0) * (x1 - x0); }
};

inline float iou(const Box &a, const Box &b) {
  const float h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  const float w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (h <= 0.f || w <= 0.f)
    return 0.f;
  const float both = h * w;
  return both / (a.area() + b.area() - both);
}

class Nms : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> boxes; // [n][4]
  InOut<Vector<float>> scores;
  Output<Vector<int>> kept;
  float threshold;

  bool compute() {
    const Box *box = reinterpret_cast<const Box *>(&boxes[0]);
    for (unsigned k = 0; k < kept.size(); ++k) {
      const auto best = std::max_element(scores.begin(), scores.end());
      if (*best == std::numeric_limits<float>::lowest()) {
        kept[k] = -1;
        continue;
      }
      const int at = std::distance(scores.begin(), best);
      kept[k] = at;
      for (unsigned i = 0; i < scores.size(); ++i)
        if (iou(box[at], box[i]) > threshold)
          scores[i] = std::numeric_limits<float>::lowest();
    }
    return true;
  }
};

} // namespace nms
