// printf, which writes to the host's standard output.
#pragma once

#include <cstdio>
