// Element types that have names of their own on the tile.
#pragma once

#include <cstddef>
#include <cstdint>

using half = _Float16;

// long has 64 bits here and 32 on the tile, where these are long long.
typedef long long abele_int64;
typedef unsigned long long abele_uint64;
namespace std {
using ::abele_int64;
using ::abele_uint64;
} // namespace std
#define int64_t abele_int64
#define uint64_t abele_uint64
