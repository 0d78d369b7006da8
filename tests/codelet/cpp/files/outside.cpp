// Vertices that leave their fields when they are told to.
#include <poplar/Vertex.hpp>
#include <cstring>
using namespace poplar;
struct Poke : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() { for (unsigned i = 0; i < y.size(); ++i) y[i] = 1.f;
    y[at[0]] = 2.f; // line: poke
    return true; }
};
struct Fill : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    std::memset(&y[0], 0, at[0]); // line: fill
    return true; }
};
struct Rows : Vertex {
  Input<Vector<int>> at; Vector<Output<Vector<float>>> y;
  bool compute() {
    y[at[0]][at[1]] = 2.f; // line: rows
    return true; }
};
struct Local : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() { float a[8]; for (int i=0;i<8;++i) a[i]=y[i%2];
    a[at[0]] = 2.f; // line: local
    y[0] = a[at[1]]; return true; }
};
struct EitherInput : Vertex { // which of them, nobody knows before it runs
  InOut<Vector<int>> at; Input<Vector<int>> x; Output<Vector<float>> y;
  bool compute() {
    int *p = at[0] ? &at[0] : const_cast<int *>(&x[0]);
    p[1] = 3; // line: write to an input
    y[0] = 1.f;
    return true;
  }
};
struct Copy : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    std::memmove(&y[0], &y[at[1]], at[0]); // line: copy
    return true;
  }
};
struct Before : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    float *end = &y[0] - at[0];
    *end = 1.f; // line: before
    return true;
  }
};
struct Table : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    static const float table[4] = {1.f, 2.f, 3.f, 4.f};
    y[0] = table[at[0]];
    return true;
  }
};
struct Gather : Vertex {
  Input<Vector<int>> at; Vector<Input<float>> x; Output<Vector<float>> y;
  bool compute() {
    y[0] = x[at[0]]; // line: gather
    return true;
  }
};
struct Bytes : Vertex {
  Input<Vector<int>> at; Output<Vector<unsigned char>> y; Input<Vector<long long>> x;
  bool compute() {
    y[at[0]] = static_cast<unsigned char>(x[at[1]]); // line: bytes
    return true;
  }
};
struct Wide : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    float4 *p = reinterpret_cast<float4 *>(&y[0]);
    p[at[0]] = float4{1.f, 2.f, 3.f, 4.f}; // line: wide
    return true;
  }
};
struct FromNan : Vertex {
  Input<Vector<int>> at; Input<Vector<float>> x; Output<Vector<float>> y;
  bool compute() {
    y[static_cast<int>(x[0] * 1e30f)] = 1.f; // line: infinite index
    return true;
  }
};
struct Racing : MultiVertex { // the last worker wins
  Output<Vector<float>> y;
  bool compute(unsigned w) {
    y[0] = float(w);
    return true;
  }
};
struct Apart : MultiVertex {
  Output<Vector<float>> y;
  bool compute(unsigned w) {
    y[w] = float(w);
    return true;
  }
};
struct Either : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y; InOut<Vector<float>> z;
  bool compute() { float *p = at[0] ? &y[0] : &z[0];
    for (int i = 0; i < at[1]; ++i)
      *p++ = 3.f; // line: either
    return true; }
};
struct Multi : MultiVertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute(unsigned w) {
    y[w * at[0]] = 1; // line: worker
    return true; }
};
struct Deep : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() {
    volatile float big[1 << 22]; // 16 MB on the stack
    for (int i = 0; i < at[0]; i += 1024)
      big[i] = float(i);
    y[0] = big[at[1]];
    return true;
  }
};
