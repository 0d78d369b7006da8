// Alignments of fields are arguments of their vectors: Vector<T, Layout, Alignment, Interleaved>.
#pragma once

#include <poplar/Vertex.hpp>
