// The intrinsics, under the other names of their header.
#pragma once

#include <ipu_builtins.h>
#include <ipu_vector_math>
