// The element types that fields may have, as traits.
#pragma once

#include <abele/scalars.hpp>

#include <type_traits>

namespace poplar {

template <class T>
struct is_field_type : std::integral_constant<bool, std::is_arithmetic<T>::value || std::is_same<T, ::half>::value> {};

} // namespace poplar
