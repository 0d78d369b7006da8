// One codelet for each kind of field and layout.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

static constexpr auto SPAN = poplar::VectorLayout::SPAN;
static constexpr auto ONE_PTR = poplar::VectorLayout::ONE_PTR;

class ScalarInOut : public Vertex {
public:
  Input<float> a;
  Input<int> b;
  Output<float> sum;
  InOut<int> count;

  bool compute() {
    *sum = *a + float(b);
    count = count + 1;
    return true;
  }
};

class ScalarTypes : public Vertex {
public:
  Input<bool> flag;
  Input<unsigned char> small;
  Input<short> medium;
  Input<long long> large;
  Output<long long> out;
  Output<bool> negated;

  void compute() {
    out = static_cast<long long>(small) + medium + large;
    *negated = !*flag;
  }
};

class OnePtr : public Vertex {
public:
  Input<Vector<float, poplar::VectorLayout::ONE_PTR>> in;
  Output<Vector<float, ONE_PTR, 8>> out;
  const unsigned n;

  bool compute() {
    for (unsigned i = 0; i != n; ++i)
      out[i] = in[i] * in[i];
    return true;
  }
};

template <class T> class Span : public Vertex {
public:
  Input<Vector<T, SPAN, 8>> in;
  Output<Vector<T, SPAN, 8>> out;

  bool compute() {
    auto *to = out.begin();
    for (auto value : in)
      *to++ = value + T(1);
    return true;
  }
};
template class Span<float>;
template class Span<half>;
template class Span<int>;
template class Span<unsigned>;
template class Span<unsigned short>;
template class Span<signed char>;
template class Span<unsigned char>;
template class Span<long long>;

class ShortSpan : public Vertex {
public:
  Input<Vector<int, VectorLayout::SHORT_SPAN>> in;
  InOut<Vector<int, VectorLayout::SHORT_SPAN>> total;

  bool compute() {
    for (std::size_t i = 0; i < in.size(); i++)
      total[i % total.size()] += in[i];
    return true;
  }
};

class Scaled : public Vertex {
public:
  Input<Vector<float, VectorLayout::SCALED_PTR32, 4>> a;
  Input<Vector<float, VectorLayout::SCALED_PTR64, 8, true>> b;
  Output<Vector<float, VectorLayout::SCALED_PTR128, 16, true>> out;
  Input<Vector<float, VectorLayout::COMPACT_PTR>> c;
  unsigned short n;

  bool compute() {
    for (unsigned i = 0; i < n; ++i)
      out[i] = a[i] * b[i] + c[i];
    return true;
  }
};

class Bools : public Vertex {
public:
  Input<Vector<bool>> in;
  Output<Vector<bool>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = !in[i];
    return true;
  }
};

class RowSums : public Vertex {
public:
  Vector<Input<Vector<float>>> in;
  Output<Vector<float>> out;

  bool compute() {
    for (unsigned r = 0; r < in.size(); ++r) {
      float sum = 0;
      for (unsigned i = 0; i < in[r].size(); ++i)
        sum += in[r][i];
      out[r] = sum;
    }
    return true;
  }
};

class RowsToRows : public Vertex {
public:
  Vector<Input<Vector<int, ONE_PTR, 4>>, ONE_PTR> in;
  Vector<Output<Vector<int, SPAN, 4>>, SPAN> out;

  bool compute() {
    for (unsigned r = 0; r < out.size(); ++r) {
      const auto &from = in[r];
      auto &to = out[r];
      for (unsigned i = 0; i < to.size(); ++i)
        to[i] = 10 * from[i];
    }
    return true;
  }
};

class RowsInPlace : public Vertex {
public:
  Vector<InOut<Vector<half>>> rows;
  float factor;

  bool compute() {
    for (auto &row : rows)
      for (auto &value : row)
        value = half(float(value) * factor);
    return true;
  }
};

class Gather : public Vertex {
public:
  Vector<Input<float>> in;
  Vector<Output<float>> out;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      out[i] = *in[in.size() - 1 - i] * 2;
    return true;
  }
};

class ListIn : public Vertex {
public:
  Input<VectorList<float, VectorListLayout::DELTANELEMENTS>> in;
  Output<Vector<float>> largest;

  bool compute() {
    for (unsigned r = 0; r < in.size(); ++r) {
      auto row = in[r];
      float m = row[0];
      for (unsigned i = 1; i < row.size(); ++i)
        m = row[i] > m ? row[i] : m;
      largest[r] = m;
    }
    return true;
  }
};

class ListOut : public Vertex {
public:
  Output<VectorList<int, poplar::VectorListLayout::DELTAN, 8>> out;
  InOut<VectorList<unsigned short, VectorListLayout::DELTANELEMENTS>> counts;

  bool compute() {
    for (unsigned r = 0; r < out.size(); ++r)
      for (unsigned i = 0; i < out[r].size(); ++i)
        out[r][i] = int(100 * r + i);
    for (unsigned r = 0; r < counts.size(); ++r)
      for (unsigned i = 0; i < counts[r].size(); ++i)
        counts[r][i]++;
    return true;
  }
};

class StateVector : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  Vector<float> taps;
  Vector<unsigned short, ONE_PTR> order;

  bool compute() {
    for (unsigned i = 0; i < out.size(); ++i) {
      float sum = 0;
      for (unsigned t = 0; t < taps.size(); ++t)
        sum += taps[order[t]] * in[i + t];
      out[i] = sum;
    }
    return true;
  }
};

class Running : public Vertex {
  unsigned steps; // private, and kept from one execution to the next
  bool odd;

public:
  Vector<float> sums;
  Input<Vector<float>> in;
  Output<unsigned> count;

  bool compute() {
    for (unsigned i = 0; i < in.size(); ++i)
      sums[i] += in[i];
    steps += 1;
    odd = !odd;
    *count = odd ? steps : 1000 + steps;
    return true;
  }
};
