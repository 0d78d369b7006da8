// Classes with a body in assembly beside one that has it in C++ only.
#include <poplar/Vertex.hpp>
#include "poplibs_support/ExternalCodelet.hpp"

using namespace poplar;

class TimeStamp : public Vertex {
public:
  Output<Vector<unsigned>> out;
  bool compute() {
    unsigned low, high;
    asm volatile("get %0, 0x60" : "=r"(low));
    asm volatile("get %0, 0x61" : "=r"(high));
    out[0] = low;
    out[1] = high;
    return true;
  }
};

class AlwaysExternal : public Vertex {
public:
  static const bool isExternalCodelet = true;
  InOut<Vector<float>> x;
  bool compute() { return true; }
};

class Negate : public Vertex {
public:
  InOut<Vector<int>> x;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      x[i] = -x[i];
    return true;
  }
};
