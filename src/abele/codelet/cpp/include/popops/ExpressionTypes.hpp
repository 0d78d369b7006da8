// What codelets use of it: names.
#pragma once

#include <popops/ExprOp.hpp>
