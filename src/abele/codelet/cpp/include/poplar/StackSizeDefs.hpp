// Stack sizes that a file states; the host has stack enough.
#pragma once

#define DEF_STACK_SIZE_OWN(...)
#define DEF_STACK_USAGE(...)
#define DEF_FUN_PTR_TYPE(...)
#define DEF_FUNC_CALL_PTRS(...)
#define DEF_FUNC_CALLS(...)
#define RECURSIVE_FUNCTION_SIZE(...)
#define RECURSIVE_FUNC_SIZE(...)
#define ABELE_STACK_SIZES 1
