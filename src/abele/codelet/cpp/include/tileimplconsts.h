// Constants of the tile. Source: machine reference, sections 1.1 and 1.2 (published tile memory map and issue model).
#pragma once

#define CTXT_WORKERS 6
#define CTXT_TOTAL 7
#define TMEM_REGION0_BASE_ADDR 0x4c000
#define TMEM_ELEMSIZE 0x4000
#define TMEM_BYTE_MAX_ADDR 0xe8000
#define CSR_W_WSR__INDEX 0
#define CSR_W_WSR__CTXTID_M1__SHIFT 0
#define CSR_W_WSR__CTXTID_M1__MASK 0x7
