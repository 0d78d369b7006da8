// Metadata of 8-bit floats, for programs that name them without their namespace.
#pragma once

#include <poplar/QuarterFloat.hpp>

using poplar::MetadataType;
using poplar::packMetadata;
using poplar::quarter_metadata;
using poplar::QuarterMetadata;
using poplar::unpackMetadata;
