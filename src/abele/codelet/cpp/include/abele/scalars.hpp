// Element types that have names of their own on the tile.
#pragma once

#include <cstddef>
#include <cstdint>

using half = _Float16;

/// Number of repetitions that a hardware loop takes.
using rptsize_t = unsigned;
