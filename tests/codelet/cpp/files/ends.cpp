// Vertices that end before their time: calls that end a program, loops that need not end, workers that wait.
#include <poplar/Vertex.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#undef NDEBUG
#include <cassert>
using namespace poplar;

struct Aborts : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    for (auto &v : x) {
      if (v < 0)
        abort();
      v += 1;
    }
    return true;
  }
};
struct Exits : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    if (x[0] < 0) {
      fprintf(stderr, "negative: %f\n", x[0]);
      exit(3);
    }
    x[0] += 1;
    return true;
  }
};
struct Asserts : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    assert(x[0] >= 0 && "not negative");
    x[0] += 1;
    return true;
  }
};
struct Checks : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    const std::array<float, 3> table{1, 2, 3};
    x[0] = table.at(unsigned(x[0]));
    return true;
  }
};
struct Throws : public Vertex {
  InOut<Vector<float>> x;
  float positive(float v) const { return v < 0 ? throw std::runtime_error("negative") : v; }
  bool compute() {
    x[0] = positive(x[0]) + 1;
    return true;
  }
};
struct Undefined : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    __builtin_unreachable();
    return true;
  }
};

struct Collatz : public Vertex {
  InOut<Vector<int>> x;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i) {
      int n = x[i], steps = 0;
      while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        ++steps;
      }
      x[i] = steps;
    }
    return true;
  }
};
struct OfState : public Vertex {
  InOut<Vector<int>> x;
  unsigned n;
  bool compute() {
    volatile int *seen = &x[0];
    unsigned m = n;
    for (;;) {
      if (m == 1)
        break;
      m = m % 2 ? 3 * m + 1 : m / 2;
      *seen = int(m);
    }
    return true;
  }
};
struct LastWaits : public MultiVertex {
  InOut<Vector<int>> x;
  bool compute(unsigned worker) {
    volatile int *flags = &x[0];
    flags[worker] = 1;
    if (worker == 5) {
      for (unsigned w = 0; w < 6; ++w)
        while (!flags[w])
          ;
      x[6] = 42;
    }
    return true;
  }
};
struct FirstWaits : public MultiVertex {
  InOut<Vector<int>> x;
  bool compute(unsigned worker) {
    volatile int *flags = &x[0];
    if (worker == 0)
      while (!flags[5])
        ;
    flags[worker] = 1;
    return true;
  }
};
struct Counted : public MultiVertex {
  InOut<Vector<int>> x;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < x.size(); i += 6)
      x[i] += 1;
    unsigned n = x.size();
    while (n >>= 1)
      x[0] += worker == 0;
    for (int *p = &x[0]; p != &x[0] + x.size(); p += 1)
      if (*p == -100)
        break;
    return true;
  }
};
