// Numbers that stand for something else.
#pragma once

#define MASKED_LABEL_CODE 0xFFFFFFFFU
#define EPS_LOG_N_FLOAT (1.17549435e-38f)
#define EPS_LOG_N_HALF (6.104e-05f)
