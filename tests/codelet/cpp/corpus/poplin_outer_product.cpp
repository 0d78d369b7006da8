// An outer product into groups of channels.
#include "poplibs_support/ExternalCodelet.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

namespace poplin {

template <class T> class [[poplar::constraint("elem(*weights) != elem(**out)")]] OuterProduct : public Vertex {
public:
  OuterProduct();

  Input<Vector<T>> in;
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> weights;
  Vector<Output<Vector<T, VectorLayout::ONE_PTR, 8>>> out;
  const unsigned chansPerGroup;

  IS_EXTERNAL_CODELET(EXTERNAL_CODELET);

  bool compute() {
    const auto width = in.size();
    const auto numChans = out.size() * chansPerGroup;
    for (unsigned g = 0; g != out.size(); ++g)
      for (unsigned chan = 0; chan != chansPerGroup; ++chan)
        for (unsigned x = 0; x != width; ++x)
          out[g][chan + x * chansPerGroup] = in[x] * weights[chan + g * chansPerGroup];
    return numChans > 0;
  }
};

template class OuterProduct<float>;
template class OuterProduct<half>;

} // namespace poplin
