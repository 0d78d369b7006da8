// The instructions as functions, under the other name of their header.
#pragma once

#include <ipu_intrinsics>
