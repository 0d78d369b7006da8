#pragma once

#include <tileimplconsts.h>
