// What the compiler is told.
#pragma once

#define POPLIB_UNREACHABLE() __builtin_unreachable()
#define POPLIBS_UNREACHABLE() __builtin_unreachable()
