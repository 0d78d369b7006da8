// Vector types, under the names that the tile's compiler has for them.
#pragma once

#include <abele/types.hpp>

typedef abele::half2 half2;
typedef abele::half4 half4;
typedef abele::half8 half8;
typedef abele::float2 float2;
typedef abele::float4 float4;
typedef abele::char2 char2;
typedef abele::char4 char4;
typedef abele::schar2 schar2;
typedef abele::schar4 schar4;
typedef abele::uchar2 uchar2;
typedef abele::uchar4 uchar4;
typedef abele::short2 short2;
typedef abele::short4 short4;
typedef abele::ushort2 ushort2;
typedef abele::ushort4 ushort4;
typedef abele::int2 int2;
typedef abele::int4 int4;
typedef abele::uint2 uint2;
typedef abele::uint4 uint4;
typedef abele::longlong2 longlong2;
typedef abele::longlong4 longlong4;
