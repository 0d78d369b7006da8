// Supervisors: conditional by the build, plain, and one that starts workers by its own instructions.
#include "poplibs_support/ExternalCodelet.hpp"
#include <poplar/Vertex.hpp>

#if defined(__IPU__)
#define HAS_ASM true
#else
#define HAS_ASM false
#endif

using namespace poplar;

class ZeroSupervisor : public SupervisorVertexIf<HAS_ASM> {
public:
  Output<Vector<float>> data;
  bool compute() {
    for (auto &v : data)
      v = 0.0f;
    return true;
  }
};

class CountSupervisor : public SupervisorVertex {
public:
  InOut<unsigned> counter;
  unsigned by;
  bool compute() {
    *counter += by;
    return true;
  }
};

class RunAll : public SupervisorVertex {
public:
  InOut<Vector<float>> data;
  bool compute() {
    asm volatile("runall %0, %1, 0\n sync 0" ::"r"(&data[0]), "r"(this));
    return true;
  }
};
