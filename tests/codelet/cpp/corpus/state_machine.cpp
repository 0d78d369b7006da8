// State that stays with the vertex: counters, a ring buffer, a moving average.
#include <poplar/Vertex.hpp>

enum class Mode : unsigned char { WARM, RUN, HOLD };

class MovingAverage : public poplar::Vertex {
public:
  poplar::Input<float> x;
  poplar::Output<float> y;
  poplar::Vector<float, poplar::VectorLayout::SPAN> ring;
  unsigned short at;
  unsigned count;
  Mode mode;

  bool compute() {
    ring[at] = *x;
    at = (at + 1) % ring.size();
    if (count < ring.size())
      ++count;
    mode = count == ring.size() ? Mode::RUN : Mode::WARM;
    float s = 0;
    for (unsigned i = 0; i < count; ++i)
      s += ring[i];
    *y = mode == Mode::HOLD ? 0 : s / count;
    return true;
  }
};
