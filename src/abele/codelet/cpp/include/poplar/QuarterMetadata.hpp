// Metadata of 8-bit floats, with the floats.
#pragma once

#include <poplar/QuarterFloat.hpp>
