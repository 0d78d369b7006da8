// The k largest by a heap of the smallest, with indices, sorted at the end.
#include <poplar/Vertex.hpp>

using namespace poplar;

template <typename T> class TopK : public Vertex {
  void siftDown(unsigned at, unsigned size) {
    for (;;) {
      unsigned least = at;
      const unsigned left = 2 * at + 1, right = left + 1;
      if (left < size && values[left] < values[least])
        least = left;
      if (right < size && values[right] < values[least])
        least = right;
      if (least == at)
        return;
      exchange(at, least);
      at = least;
    }
  }
  void exchange(unsigned a, unsigned b) {
    const T v = values[a];
    values[a] = values[b];
    values[b] = v;
    const unsigned i = indices[a];
    indices[a] = indices[b];
    indices[b] = i;
  }

public:
  Input<Vector<T>> in;
  Output<Vector<T>> values;
  Output<Vector<unsigned>> indices;

  bool compute() {
    const unsigned k = values.size();
    for (unsigned i = 0; i < k; ++i) {
      values[i] = in[i];
      indices[i] = i;
    }
    for (unsigned i = k / 2; i-- > 0;)
      siftDown(i, k);
    for (unsigned i = k; i < in.size(); ++i)
      if (values[0] < in[i]) {
        values[0] = in[i];
        indices[0] = i;
        siftDown(0, k);
      }
    for (unsigned n = k; n-- > 1;) {
      exchange(0, n);
      siftDown(0, n);
    }
    return true;
  }
};

template class TopK<float>;
template class TopK<int>;
