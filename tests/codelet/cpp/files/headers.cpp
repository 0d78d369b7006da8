// One program in one file, as research codes have them: a host half, and codelets that use what the headers bring.
#include <poplar/Alignment.hpp>
#include <poplar/AvailableVTypes.h>
#include <poplar/FieldTypes.hpp>
#include <poplar/Graph.hpp>
#include <poplar/IeeeHalf.hpp>
#include <poplar/Loops.hpp>
#include <poplar/QuarterFloat.hpp>
#include <poplar/StackSizeDefs.hpp>
#include <poplar/Vertex.hpp>

#include <boost/multi_array.hpp>
#include <gccs/popops/ElementWise.hpp>
#include <popnn/NonLinearity.hpp>
#include <poplibs_support/Algorithm.hpp>
#include <poplibs_support/Compiler.hpp>
#include <poplibs_support/ExternalCodelet.hpp>
#include <poplibs_support/LogArithmetic.hpp>
#include <poplibs_support/TileConstants.hpp>
#include <poplin/codelets.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Operation.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>
#include <print.h>

#include <array>
#include <cmath>

#ifndef __POPC__
int main() {
  poplar::Graph graph(poplar::Target::createIPUTarget(1, "ipu2"));
  return 0;
}
#else

using namespace poplar;

struct float2 { // a vector of its own, which the headers leave room for
  float x, y;
};
struct Pair {
  double first, second;
};

static ALWAYS_INLINE float length(float2 v) { return std::sqrt(v.x * v.x + v.y * v.y); }

class Lengths : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> xy;
  Output<Vector<float>> out;

  bool compute() {
    const float *from = reinterpret_cast<float *>(&xy[0]);
    for (std::size_t i = 0; i < out->size(); ++i)
      out[i] = length({from[2 * i], from[2 * i + 1]});
    return true;
  }
};

class [[poplar::constraint("elem(*in) != elem(*out)")]] Supervised : public SupervisorVertexIf<EXTERNAL_CODELET> {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  IS_EXTERNAL_CODELET(EXTERNAL_CODELET);

  __attribute__((target("supervisor"))) bool compute() {
    for (rptsize_t i = 0; i < in.size(); ++i)
      out[i] = poplibs_support::log::add(in[i], 0.0f);
    return true;
  }
};

class AllWorkers : public MultiVertex {
public:
  InOut<Vector<int>> x;

  bool compute(unsigned worker) {
    const unsigned each = poplibs_support::ceildiv(unsigned(x.size()), numWorkers());
    const unsigned end = std::min(unsigned(x.size()), (worker + 1) * each);
    for (unsigned i = worker * each; i < end; ++i)
      x[i] += worker;
    return true;
  }
};

template <popops::expr::BinaryOpType op, popnn::NonLinearityType nl, popops::Operation reduction>
class Kinds : public Vertex {
public:
  Output<unsigned> out;
  bool compute() {
    *out = unsigned(op) + 100 * unsigned(nl) + 10000 * unsigned(reduction);
    return true;
  }
};
template class Kinds<popops::expr::BinaryOpType::MULTIPLY, popnn::NonLinearityType::TANH, popops::Operation::MAX>;

class ToQuarter : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<unsigned char>> bits;
  Output<Vector<float>> back;
  unsigned format;
  int scale;

  bool compute() {
    const QuarterMetadata metadata(format ? QuarterMetadata::Format::F152 : QuarterMetadata::Format::F143, scale);
    for (unsigned i = 0; i < in.size(); ++i) {
      const quarter q = toQuarter(in[i], metadata);
      bits[i] = q.bits;
      back[i] = toFloat(q, metadata);
    }
    return true;
  }
};

class Bits : public Vertex {
public:
  Input<Vector<unsigned short>> bits;
  Output<Vector<float>> out;

  bool compute() {
    for (unsigned i = 0; i < out.size(); ++i)
      out[i] = IeeeHalf::fromBits(bits[i]);
    return true;
  }
};

#endif
