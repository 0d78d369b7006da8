// What codelets use of it: names.
#pragma once

#include <popops/OperationDef.hpp>
