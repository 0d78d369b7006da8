// A vertex that is a supervisor where it has its assembly, and a plain vertex elsewhere.
#include "poplibs_support/ExternalCodelet.hpp"
#include "poplibs_support/TileConstants.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

static constexpr auto ONE_PTR = poplar::VectorLayout::ONE_PTR;
static constexpr auto SHORT_SPAN = poplar::VectorLayout::SHORT_SPAN;

namespace popops {

template <typename AType, typename BType, typename ScaleType, bool isConstant, bool memConstraints>
class ScaledAddSupervisor : public SupervisorVertexIf<ASM_CODELETS_ENABLED> {
  constexpr static std::size_t minAlign() { return 8; }

public:
  ScaledAddSupervisor();
  IS_EXTERNAL_CODELET(EXTERNAL_CODELET);

  InOut<Vector<AType, ONE_PTR, minAlign(), memConstraints>> A;
  unsigned short size;
  Input<Vector<BType, ONE_PTR, minAlign()>> B;
  const ScaleType scaleB;

  bool compute() {
    for (unsigned i = 0; i < size; ++i)
      A[i] += static_cast<AType>(static_cast<ScaleType>(B[i]) * scaleB);
    return true;
  }
};

template class ScaledAddSupervisor<float, float, float, true, false>;
template class ScaledAddSupervisor<half, half, half, true, false>;
template class ScaledAddSupervisor<half, half, float, true, false>;
template class ScaledAddSupervisor<int, int, int, true, false>;

template <typename T> class [[poplar::constraint("elem(*A) != elem(*B)")]] aXPlusbY : public MultiVertex {
public:
  InOut<Vector<T, ONE_PTR, 8>> A;
  Input<Vector<T, ONE_PTR, 8>> B;
  Input<Vector<T, ONE_PTR>> scaleA;
  Input<Vector<T, ONE_PTR>> scaleB;
  unsigned short size;

  bool compute(unsigned wid) {
    for (unsigned i = wid; i < size; i += numWorkers())
      A[i] = *scaleA * A[i] + scaleB[0] * B[i];
    return true;
  }
};
template class aXPlusbY<float>;
template class aXPlusbY<half>;

} // namespace popops
