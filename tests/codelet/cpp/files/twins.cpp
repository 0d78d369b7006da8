// The same work as the Python codelets of test_counts.py.
#include <poplar/Vertex.hpp>
#include <ipu_intrinsics.h>

using namespace poplar;

class Saxpy : public Vertex {
public:
  Input<Vector<float>> x;
  InOut<Vector<float>> y;
  float a;

  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      y[i] += a * x[i];
    return true;
  }
};

class Dot : public Vertex {
public:
  Input<Vector<float>> x;
  Input<Vector<float>> y;
  Output<float> out;

  bool compute() {
    float sum = 0;
    for (unsigned i = 0; i < x.size(); ++i)
      sum += x[i] * y[i];
    *out = sum;
    return true;
  }
};

class Stencil : public Vertex {
public:
  Input<Vector<float>> data;
  Output<Vector<float>> out;
  unsigned width;

  bool compute() {
    for (unsigned i = width; i < data.size() - width; ++i)
      out[i] = 0.25f * (data[i - 1] + data[i + 1] + data[i - width] + data[i + width]);
    return true;
  }
};

class Pi : public Vertex {
public:
  Output<unsigned> hits;
  unsigned iterations;

  bool compute() {
    unsigned count = 0;
    for (unsigned i = 0; i < iterations; ++i) {
      float x = float(__builtin_ipu_urand32()) * 0x1p-32f;
      float y = float(__builtin_ipu_urand32()) * 0x1p-32f;
      float distance = x * x + y * y;
      if (distance < 1.0f)
        count += 1;
    }
    *hits = count;
    return true;
  }
};

class Softmax : public Vertex {
public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;

  bool compute() {
    float largest = x[0];
    for (unsigned i = 1; i < x.size(); ++i)
      largest = ipu::max(largest, x[i]);
    float sum = 0;
    for (unsigned i = 0; i < x.size(); ++i) {
      float e = ipu::exp(x[i] - largest);
      y[i] = e;
      sum += e;
    }
    float scale = 1.0f / sum;
    for (unsigned i = 0; i < x.size(); ++i)
      y[i] = y[i] * scale;
    return true;
  }
};

class Rotate : public Vertex {
public:
  Vector<Input<Vector<float>>> x;
  Vector<Output<Vector<float>>> y;
  float c, s;

  bool compute() {
    for (unsigned r = 0; r < x.size(); ++r)
      for (unsigned i = 0; i + 1 < x[r].size(); i += 2) {
        y[r][i] = c * x[r][i] - s * x[r][i + 1];
        y[r][i + 1] = s * x[r][i] + c * x[r][i + 1];
      }
    return true;
  }
};

class Shared : public MultiVertex {
public:
  Input<Vector<float>> x;
  Output<Vector<float>> y;

  bool compute(unsigned worker) {
    for (unsigned i = worker; i < x.size(); i += numWorkers())
      y[i] = x[i] * 2.0f;
    return true;
  }
};
