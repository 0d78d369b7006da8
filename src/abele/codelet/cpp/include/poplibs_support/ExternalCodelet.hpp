// Codelets with a body in assembly for the hardware take their C++ body here.
#pragma once

#include <poplar/Vertex.hpp>

#define EXTERNAL_CODELET false
#define ASM_CODELETS_ENABLED false
#define IS_EXTERNAL_CODELET(CONDITION) static constexpr bool isExternalCodelet = false && (CONDITION)

using poplar::SupervisorVertexIf;
