// Kinds of vertices, guards for the hardware, printing and random numbers.
#include <ipu_builtins.h>
#include <poplar/StackSizeDefs.hpp>
#include <poplar/Vertex.hpp>
#include <print.h>
#include <tileimplconsts.h>

#include <cassert>

using namespace poplar;

#ifdef __IPU__
#define SUPERVISOR_BODY __attribute__((target("supervisor")))
#else
#define SUPERVISOR_BODY __attribute__((target("supervisor")))
#endif

DEF_STACK_USAGE(0, "__runCodelet_Strided");

class Strided : public MultiVertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  Output<Vector<unsigned>> who;

  bool compute(unsigned workerId) {
    for (unsigned i = workerId; i < in.size(); i += MultiVertex::numWorkers()) {
      out[i] = in[i] + 1.0f;
      who[i] = workerId;
    }
    return true;
  }
};

class Blocks : public MultiVertex {
public:
  InOut<Vector<int>> data;
  unsigned perWorker;

  void compute(unsigned wid) {
    const unsigned begin = wid * perWorker;
    const unsigned end = begin + perWorker < data.size() ? begin + perWorker : data.size();
    for (unsigned i = begin; i < end; ++i)
      data[i] = -data[i];
  }
};

class Supervised : public SupervisorVertex {
public:
  Input<Vector<int>> in;
  Output<int> sum;

  SUPERVISOR_BODY bool compute() {
    int total = 0;
    for (int x : in)
      total += x;
    *sum = total;
    return true;
  }
};

class Guarded : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR>> in;
  Output<float> out;
  unsigned n;

  bool compute() {
    float sum = 0;
#ifdef __IPU__
    asm volatile("ld32 %[out], %[in], $mzero, 0" : [out] "=r"(sum) : [in] "r"(&in[0]));
#else
    for (unsigned i = 0; i < n; ++i)
      sum += in[i];
#endif
    *out = sum;
    return true;
  }
};

class Printing : public Vertex {
public:
  Input<Vector<int>> values;

  bool compute() {
    assert(values.size() < 1000);
    printf("%u values:", values.size());
    for (int v : values)
      printf(" %d", v);
    printf("\n");
    return true;
  }
};

class Draws : public Vertex {
public:
  Output<Vector<unsigned>> out;

  bool compute() {
    for (auto &x : out)
      x = __builtin_ipu_urand32();
    return true;
  }
};

class Whose : public Vertex {
public:
  Output<unsigned> worker;

  bool compute() {
    *worker = __builtin_ipu_get_worker_id() + CTXT_WORKERS;
    return true;
  }
};

class WhileLoop : public Vertex {
public:
  Input<Vector<unsigned>> start;
  Output<Vector<unsigned>> steps;

  bool compute() {
    for (unsigned i = 0; i < start.size(); ++i) {
      unsigned x = start[i], n = 0;
      while (x != 1) {
        x = x % 2 == 0 ? x / 2 : 3 * x + 1;
        ++n;
      }
      steps[i] = n;
    }
    return true;
  }
};

static void axpy(float *__restrict to, const float *__restrict from, float a, unsigned n) {
  __builtin_assume(n < 100000);
  for (unsigned i = 0; i < n; ++i)
    to[i] += a * from[i];
}

class Restricted : public Vertex {
public:
  InOut<Vector<float>> y;
  Input<Vector<float>> x;

  bool compute() {
    axpy(&y[0], &x[0], x[0], y.size());
    return true;
  }
};
