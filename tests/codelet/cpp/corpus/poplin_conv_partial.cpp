// A convolution's partial sums by a worklist: rows of input, weights and output groups.
#include "poplibs_support/ExternalCodelet.hpp"
#include "poplibs_support/TileConstants.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <cassert>
#include <type_traits>

using namespace poplar;

static constexpr auto ONE_PTR = poplar::VectorLayout::ONE_PTR;
static constexpr auto COMPACT_DELTAN = poplar::VectorListLayout::COMPACT_DELTAN;

#if defined(__IPU__) && !defined(POPLIBS_DISABLE_ASM_CODELETS)
#define EXTERNAL true
#else
#define EXTERNAL false
#endif

namespace poplin {

template <typename UnsignedType>
using WorkListType = typename std::conditional<std::is_same<UnsignedType, unsigned short>::value, short, int>::type;

template <class FPType, class AccumType, bool useLimitedVer, unsigned numConvUnits> class ConvPartialHorizontalMac : public Vertex {
public:
  ConvPartialHorizontalMac();

  using WorkListNum = typename std::conditional<useLimitedVer, unsigned short, unsigned>::type;
  static const bool isExternalCodelet = EXTERNAL && std::is_same<FPType, half>();

  Vector<Input<Vector<FPType, ONE_PTR, 8>>, ONE_PTR> in;
  Vector<Input<Vector<FPType, ONE_PTR, 8>>, ONE_PTR> weights;
  Vector<Output<Vector<AccumType, ONE_PTR, 8>>, ONE_PTR> out;
  Input<VectorList<WorkListNum, COMPACT_DELTAN>> worklists; // for each context: out offset, in offset, number
  const unsigned outChansPerGroup;
  const unsigned inChansPerGroup;
  const unsigned numOutGroups;
  const unsigned numInGroups;

  bool compute() {
    for (unsigned og = 0; og < numOutGroups; ++og) {
      for (unsigned context = 0; context < CTXT_WORKERS; ++context) {
        const auto &list = worklists[context];
        for (unsigned w = 0; w + 2 < list.size(); w += 3) {
          const unsigned outBegin = list[w], inBegin = list[w + 1], num = list[w + 2];
          for (unsigned x = 0; x < num; ++x)
            for (unsigned oc = 0; oc < outChansPerGroup; ++oc) {
              AccumType sum = 0;
              for (unsigned ig = 0; ig < numInGroups; ++ig)
                for (unsigned ic = 0; ic < inChansPerGroup; ++ic)
                  sum += AccumType(in[ig][(inBegin + x) * inChansPerGroup + ic] *
                                   weights[og * numInGroups + ig][oc * inChansPerGroup + ic]);
              out[og][(outBegin + x) * outChansPerGroup + oc] = sum;
            }
        }
      }
    }
    return true;
  }
};

template class ConvPartialHorizontalMac<float, float, true, 8>;
template class ConvPartialHorizontalMac<float, float, false, 8>;
template class ConvPartialHorizontalMac<half, float, true, 8>;

} // namespace poplin
