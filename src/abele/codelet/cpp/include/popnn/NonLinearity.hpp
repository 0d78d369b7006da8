// What codelets use of it: names.
#pragma once

#include <popnn/NonLinearityDef.hpp>
