// throw, where there are no exceptions: it ends the vertex. Headers that write the word themselves come first.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

extern "C" [[noreturn]] void abele_thrown();

namespace abele {

/// What stands for ``throw``: whatever is assigned to it ends the vertex. It gives a value of any type, as a throw may
/// stand where any is expected.
struct Thrown {
  struct Any {
    template <class T> operator T() const { abele_thrown(); }
  };
  template <class T> Any operator=(T &&) const { abele_thrown(); }
};

} // namespace abele

#define throw ::abele::Thrown{} =
