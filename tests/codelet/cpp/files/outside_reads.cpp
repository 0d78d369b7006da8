// Data at file level that nobody writes, and calls through pointers.
#include <poplar/Vertex.hpp>
using namespace poplar;

float limit = 2.5f;
int offsets[4] = {3, 1, 4, 1};
static float zero;
namespace ns {
float inner = 0.5f;
}
struct Settings {
  static float gain;
};
float Settings::gain = 2;
int counter = 5;

static float plus(float x) { return x + 1; }
static float twice(float x) { return x * 2; }
static float minus(float x) { return x - 3; }
typedef float (*Function)(float);
static const Function table[] = {plus, twice, minus};
Function square[2][2] = {{plus, twice}, {minus, plus}};
struct Step {
  Function function;
  float by;
};
static const Step steps[2] = {{twice, 2.0f}, {minus, 4.0f}};
template <class F> static float apply(F f, float x) { return f(x); }

struct Reads : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    for (auto &v : x)
      v = v < limit ? offsets[unsigned(v) & 3] * Settings::gain + ns::inner + zero : v;
    return true;
  }
};
struct Writes : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    x[0] = ++counter;
    return true;
  }
};
struct ReadsWritten : public Vertex {
  InOut<Vector<float>> x;
  bool compute() {
    x[0] = counter;
    return true;
  }
};
struct ByTable : public Vertex {
  InOut<Vector<float>> x;
  unsigned k;
  bool compute() {
    for (auto &v : x)
      v = table[k](v);
    return true;
  }
};
struct BySquare : public Vertex {
  InOut<Vector<float>> x;
  unsigned k;
  bool compute() {
    for (auto &v : x)
      v = square[k >> 1][k & 1](v);
    return true;
  }
};
struct ByStep : public Vertex {
  InOut<Vector<float>> x;
  unsigned k;
  bool compute() {
    for (auto &v : x)
      v = steps[k].function(v) * steps[k].by;
    return true;
  }
};
struct ByChoice : public Vertex {
  InOut<Vector<float>> x;
  unsigned k;
  bool compute() {
    Function f = k ? twice : minus;
    for (auto &v : x)
      v = apply(f, v);
    return true;
  }
};
struct Shape {
  virtual float area(float r) const = 0;
};
struct Circle : Shape {
  float area(float r) const override { return 3 * r * r; }
};
struct Square : Shape {
  float area(float r) const override { return r * r; }
};
struct ByVirtual : public Vertex {
  InOut<Vector<float>> x;
  unsigned k;
  bool compute() {
    Circle circle;
    Square square;
    const Shape *shape = k ? static_cast<const Shape *>(&circle) : &square;
    for (auto &v : x)
      v = shape->area(v);
    return true;
  }
};
struct OwnVirtual : public Vertex {
  InOut<Vector<float>> x;
  virtual float step(float v) const { return v + 1; }
  bool compute() {
    x[0] = step(x[0]);
    return true;
  }
};
struct Casts : public Vertex {
  Input<Vector<unsigned short>> a;
  Input<unsigned short> b;
  Input<Vector<const unsigned short>> c;
  const Input<Vector<unsigned short>> d;
  Vector<Input<Vector<unsigned short>>> e;
  Output<unsigned> sum;
  bool compute() {
    unsigned short *p = &a[0], *q = &*b, *r = &c[0], *s = &d[0], *t = &e[0][0];
    *sum = *p + *q + *r + *s + *t;
    return true;
  }
};
