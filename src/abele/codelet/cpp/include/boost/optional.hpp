// A value that may be absent.
#pragma once

#include <optional>

namespace boost {

template <class T> using optional = std::optional<T>;
constexpr std::nullopt_t none = std::nullopt;

} // namespace boost
