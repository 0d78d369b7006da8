// Recursion in one class; the same by a stack of its own in the other.
#include <poplar/Vertex.hpp>

using namespace poplar;

static int ackermann(int m, int n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

class Ackermann : public Vertex {
public:
  Input<Vector<int>> mn;
  Output<int> out;
  bool compute() {
    *out = ackermann(mn[0], mn[1]);
    return true;
  }
};

class QuickSort : public Vertex {
public:
  InOut<Vector<int>> v;
  bool compute() {
    int stack[64], top = 0;
    stack[top++] = 0;
    stack[top++] = static_cast<int>(v.size()) - 1;
    while (top) {
      const int high = stack[--top], low = stack[--top];
      if (low >= high)
        continue;
      const int pivot = v[(low + high) / 2];
      int i = low, j = high;
      while (i <= j) {
        while (v[i] < pivot)
          ++i;
        while (v[j] > pivot)
          --j;
        if (i <= j) {
          const int t = v[i];
          v[i++] = v[j];
          v[j--] = t;
        }
      }
      stack[top++] = low;
      stack[top++] = j;
      stack[top++] = i;
      stack[top++] = high;
    }
    return true;
  }
};
