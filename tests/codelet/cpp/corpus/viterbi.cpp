// Viterbi over a trellis with back pointers.
#include <poplar/Vertex.hpp>

using namespace poplar;

class Viterbi : public Vertex {
public:
  Input<Vector<float>> transition; // [from][to], logarithms
  Input<Vector<float>> emission;   // [symbol][state]
  Input<Vector<unsigned char>> observed;
  InOut<Vector<float>> score; // two rows
  InOut<Vector<unsigned char>> back;
  Output<Vector<unsigned char>> path;

  bool compute() {
    const unsigned states = score.size() / 2, steps = observed.size();
    for (unsigned s = 0; s < states; ++s)
      score[s] = emission[observed[0] * states + s];
    for (unsigned t = 1; t < steps; ++t) {
      const float *old = &score[(t - 1) % 2 * states];
      float *now = &score[t % 2 * states];
      for (unsigned s = 0; s < states; ++s) {
        unsigned from = 0;
        for (unsigned r = 1; r < states; ++r)
          if (old[r] + transition[r * states + s] > old[from] + transition[from * states + s])
            from = r;
        now[s] = old[from] + transition[from * states + s] + emission[observed[t] * states + s];
        back[t * states + s] = from;
      }
    }
    unsigned best = 0;
    for (unsigned s = 1; s < states; ++s)
      if (score[(steps - 1) % 2 * states + s] > score[(steps - 1) % 2 * states + best])
        best = s;
    for (unsigned t = steps; t-- > 0;) {
      path[t] = best;
      if (t)
        best = back[t * states + best];
    }
    return true;
  }
};
