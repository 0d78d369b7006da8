// Alignment of what workers share, and functions that are always put in place.
#pragma once

#ifndef WORKER_ALIGN
#define WORKER_ALIGN __attribute__((aligned(8)))
#endif
#ifndef WORKER_FUNC_ALIGN
#define WORKER_FUNC_ALIGN __attribute__((aligned(8)))
#endif
#ifndef ALWAYS_INLINE
#define ALWAYS_INLINE __attribute__((always_inline)) inline
#endif
