// Names alone: headers of the libraries mention these types.
#pragma once

#include <variant>

namespace boost {

template <class... T> using variant = std::variant<T...>;

} // namespace boost
