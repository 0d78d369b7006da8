#pragma once
#include "../math/vec.hpp"
#include <limits>
namespace gfx {
constexpr float eps = 1e-5f;
static constexpr float inf = std::numeric_limits<float>::infinity();
}
