// Element types that have names of their own on the tile.
#pragma once

#include <cstddef>
#include <cstdint>

using half = _Float16;

// long has 64 bits here and 32 on the tile, where these are long long.
namespace std {
using abele_int64 = long long;
using abele_uint64 = unsigned long long;
} // namespace std
using std::abele_int64;
using std::abele_uint64;
#define int64_t abele_int64
#define uint64_t abele_uint64

/// Number of repetitions that a hardware loop takes.
using rptsize_t = unsigned;
