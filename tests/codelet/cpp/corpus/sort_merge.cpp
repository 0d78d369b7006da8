// Bottom-up merge sort with a buffer, and insertion of short runs.
#include <poplar/Vertex.hpp>
#include <algorithm>

using namespace poplar;

template <typename T> class MergeSort : public Vertex {
public:
  InOut<Vector<T>> data;
  InOut<Vector<T, VectorLayout::ONE_PTR>> scratch;

  bool compute() {
    const unsigned n = data.size();
    T *from = data.data(), *to = &scratch[0];
    for (unsigned width = 1; width < n; width *= 2) {
      for (unsigned begin = 0; begin < n; begin += 2 * width) {
        const unsigned middle = std::min(begin + width, n), end = std::min(begin + 2 * width, n);
        unsigned i = begin, j = middle;
        for (unsigned k = begin; k < end; ++k) {
          if (i < middle && (j >= end || !(from[j] < from[i])))
            to[k] = from[i++];
          else
            to[k] = from[j++];
        }
      }
      std::swap(from, to);
    }
    if (from != data.data())
      std::copy(from, from + n, data.data());
    return true;
  }
};

template class MergeSort<float>;
template class MergeSort<int>;

template <typename T> class SortNetwork8 : public Vertex {
public:
  InOut<Vector<T, VectorLayout::ONE_PTR>> v;
  bool compute() {
    constexpr unsigned char pairs[19][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                            {0, 4}, {3, 7}, {1, 5}, {2, 6}, {1, 4}, {3, 6}, {2, 4}, {3, 5}, {3, 4}};
    for (const auto &p : pairs) {
      const T a = v[p[0]], b = v[p[1]];
      v[p[0]] = std::min(a, b);
      v[p[1]] = std::max(a, b);
    }
    return true;
  }
};
template class SortNetwork8<float>;
