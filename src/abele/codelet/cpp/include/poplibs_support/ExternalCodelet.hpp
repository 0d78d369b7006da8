// Codelets with a body in assembly for the hardware take their C++ body here.
#pragma once

#define EXTERNAL_CODELET false
#define IS_EXTERNAL_CODELET(CONDITION) static constexpr bool isExternalCodelet = (CONDITION)
