// Registers and alignment as in the library's own code: each worker's share rounded to whole vectors.
#include "poplibs_support/TileConstants.hpp"
#include <poplar/HalfFloat.hpp>
#include <poplar/Loops.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

static __attribute__((always_inline)) unsigned divideWork(const unsigned size, const unsigned vectorWidthShifts,
                                                          const unsigned worker) {
  return ((size >> vectorWidthShifts) + CTXT_WORKERS - 1 - worker) / CTXT_WORKERS;
}

class WORKER_ALIGN ScaleWorker : public Vertex {
public:
  InOut<Vector<half, VectorLayout::SPAN, 8>> data;
  const half by;
  WORKER_FUNC_ALIGN bool compute() {
    for (unsigned i = 0; i < data.size(); ++i)
      data[i] *= by;
    return true;
  }
};

class AddVectors : public MultiVertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> a;
  InOut<Vector<float, VectorLayout::ONE_PTR, 8>> b;
  const unsigned size;
  bool compute(unsigned wid) {
    const float2 *pa = reinterpret_cast<const float2 *>(&a[0]) + wid;
    float2 *pb = reinterpret_cast<float2 *>(&b[0]) + wid;
    const rptsize_t loops = divideWork(size, 1, wid);
    for (unsigned i = 0; i < loops; ++i) {
      *pb += *pa;
      pa += CTXT_WORKERS;
      pb += CTXT_WORKERS;
    }
    if (wid == 0 && (size & 1))
      b[size - 1] += a[size - 1];
    return true;
  }
};
