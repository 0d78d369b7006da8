// Names alone: headers of the libraries mention these types, codelets have no heap to hold one.
#pragma once

#include <cstddef>

namespace boost {

template <class T, std::size_t N, class... Rest> class multi_array;
template <class T, std::size_t N> class multi_array_ref;
template <class T, std::size_t N, class... Rest> class const_multi_array_ref;

} // namespace boost
