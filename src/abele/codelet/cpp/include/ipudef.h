// Vector types and the loop count type.
#pragma once

#include <abele/types.hpp>
