// Constants of the tile, under their other name.
#pragma once

#include <tileimplconsts.h>
