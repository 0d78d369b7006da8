// Codelets of the kinds that tutorials and libraries have, in words of our own.
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include "poplibs_support/ExternalCodelet.hpp"

#include <cstring>
#include <type_traits>

using namespace poplar;

// Tutorial: the sum of a vector.
class SumVertex : public Vertex {
public:
  Input<Vector<float>> in;
  Output<float> out;

  bool compute() {
    *out = 0;
    for (const auto &v : in) {
      *out += v;
    }
    return true;
  }
};

// Tutorial: one element of a matrix-vector product.
class DotProductVertex : public Vertex {
public:
  Input<Vector<float>> a;
  Input<Vector<float>> b;
  Output<float> out;

  bool compute() {
    float sum = 0;
    for (unsigned i = 0; i < a.size(); ++i)
      sum += a[i] * b[i];
    *out = sum;
    return true;
  }
};

namespace popops {

static constexpr auto ONE_PTR = VectorLayout::ONE_PTR;

struct Add {
  static constexpr float init = 0;
  static void update(float &acc, float value) { acc += value; }
};
struct Max {
  static constexpr float init = -1e30f;
  static void update(float &acc, float value) { acc = value > acc ? value : acc; }
};

template <class Op, class PartialsType, class OutType, bool isUpdate>
class ContinuousReduce : public Vertex {
  using OutVector = typename std::conditional<isUpdate, InOut<Vector<OutType, ONE_PTR>>, Output<Vector<OutType, ONE_PTR>>>::type;

public:
  OutVector out;
  Input<Vector<PartialsType, ONE_PTR, 8>> partials;
  const unsigned short numOutputsM1;
  const unsigned short numPartials;

  IS_EXTERNAL_CODELET(EXTERNAL_CODELET);

  bool compute() {
    for (unsigned o = 0; o < numOutputsM1 + 1u; ++o) {
      const PartialsType *row = &partials[0] + o * numPartials;
      float acc = Op::init;
      for (unsigned p = 0; p < numPartials; ++p)
        Op::update(acc, static_cast<float>(row[p]));
      if (isUpdate)
        out[o] += static_cast<OutType>(acc);
      else
        out[o] = static_cast<OutType>(acc);
    }
    return true;
  }
};
template class ContinuousReduce<Add, float, float, false>;
template class ContinuousReduce<Add, half, float, true>;
template class ContinuousReduce<Max, half, half, false>;

template <class OutType> class Iota : public Vertex {
public:
  Vector<Output<Vector<OutType>>> out;
  Vector<OutType> offsets;

  bool compute() {
    for (unsigned i = 0; i != out.size(); ++i)
      for (unsigned j = 0; j != out[i].size(); ++j)
        out[i][j] = j + offsets[i];
    return true;
  }
};
template class Iota<int>;
template class Iota<unsigned>;

template <class InType> class DynamicSlice1d : public MultiVertex {
public:
  Input<unsigned> offset;
  Input<Vector<InType, ONE_PTR>> baseT;
  Output<Vector<InType, ONE_PTR>> subT;
  const unsigned numBaseElements;
  const unsigned short numSubElements;
  const unsigned regionSize;

  bool compute(unsigned workerId) {
    const unsigned first = *offset;
    for (unsigned s = 0; s != numSubElements; ++s) {
      unsigned from = first + s;
      if (from >= numBaseElements)
        from -= numBaseElements;
      for (unsigned i = workerId; i < regionSize; i += numWorkers())
        subT[s * regionSize + i] = baseT[from * regionSize + i];
    }
    return true;
  }
};
template class DynamicSlice1d<float>;
template class DynamicSlice1d<half>;

template <class T> class Fill2d : public Vertex {
public:
  T in;
  Vector<Output<Vector<T>>> out;
  static const bool ext = true;

  bool compute() {
    for (auto &row : out)
      for (auto &x : row)
        x = in;
    return true;
  }
};
template class Fill2d<half>;
template class Fill2d<bool>;

class CopyBytes : public Vertex {
public:
  Input<Vector<unsigned char>> src;
  Output<Vector<unsigned char>> dst;

  bool compute() {
    std::memcpy(&dst[0], &src[0], src.size());
    return true;
  }
};

// A spiking neuron: potential and refractory time are kept.
class LeakyNeurons : public Vertex {
public:
  Input<Vector<float>> current;
  Output<Vector<unsigned char>> spikes;
  Vector<float> potential;
  Vector<unsigned short> rest;
  const float decay;
  const float threshold;
  unsigned fired;

  bool compute() {
    for (unsigned i = 0; i < current.size(); ++i) {
      if (rest[i] > 0) {
        --rest[i];
        spikes[i] = 0;
        continue;
      }
      potential[i] = potential[i] * decay + current[i];
      const bool spike = potential[i] > threshold;
      spikes[i] = spike;
      if (spike) {
        potential[i] = 0;
        rest[i] = 2;
        ++fired;
      }
    }
    return true;
  }
};

} // namespace popops
