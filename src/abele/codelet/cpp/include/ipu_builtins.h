// The machine's instructions as functions, with their types and the constants that they take.
#pragma once

#include <abele/builtins.hpp>
#include <ipu_memory_intrinsics>
#include <ipudef.h>
#include <tileimplconsts.h>
