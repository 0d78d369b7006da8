// The functions of ipu_vector_math, under their other name.
#pragma once

#include <ipu_vector_math>
