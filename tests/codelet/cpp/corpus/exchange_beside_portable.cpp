// Hand-written exchange beside a copy that any tile can do.
#include <poplar/Vertex.hpp>

using namespace poplar;

class SendTable : public ExternalExchangeVertex {
public:
  Vector<unsigned> packets;
};

class Transpose : public Vertex {
public:
  Input<Vector<float>> in;
  Output<Vector<float>> out;
  const unsigned short rows, columns;
  bool compute() {
    for (unsigned r = 0; r < rows; ++r)
      for (unsigned c = 0; c < columns; ++c)
        out[c * rows + r] = in[r * columns + c];
    return true;
  }
};
