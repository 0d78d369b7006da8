// How vectors of a vertex are stored on the tile.
#pragma once

namespace poplar {

enum class VectorLayout : unsigned {
  NOT_A_VECTOR,
  SPAN,
  SHORT_SPAN,
  ONE_PTR,
  COMPACT_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128,
};

enum class VectorListLayout : unsigned {
  NOT_A_VECTOR,
  ONE_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128,
  DELTAN,
  DELTANELEMENTS,
  COMPACT_DELTAN,
  COMPACT_DELTANELEMENTS,
};

} // namespace poplar
