/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - sizes and names of element types, names of reduction operations.  Constant tables; any thread. */
#include "lib/reduce/reduce.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[RI_DTYPES] = {
    [RING_INT8] = {"int8", 1},
    [RING_UINT8] = {"uint8", 1},
    [RING_INT16] = {"int16", 2},
    [RING_UINT16] = {"uint16", 2},
    [RING_INT32] = {"int32", 4},
    [RING_UINT32] = {"uint32", 4},
    [RING_INT64] = {"int64", 8},
    [RING_UINT64] = {"uint64", 8},
    [RING_FLOAT] = {"float", 4},
    [RING_DOUBLE] = {"double", 8},
    [RING_FLOAT16] = {"float16", 2},
    [RING_BFLOAT16] = {"bfloat16", 2},
    [RING_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [RING_FLOAT8_E5M2] = {"float8_e5m2", 1},
};

static const char *const redops[RI_REDOPS] = {
    [RING_SUM] = "sum",   [RING_PROD] = "prod", [RING_MIN] = "min",   [RING_MAX] = "max",
    [RING_AVG] = "avg",   [RING_BAND] = "band", [RING_BOR] = "bor",   [RING_BXOR] = "bxor",
    [RING_LAND] = "land", [RING_LOR] = "lor",   [RING_LXOR] = "lxor",
};

/* Through unsigned: an enumeration may be given any number, and whether it is signed is the compiler's choice. */
bool ri_dtype_ok(ring_dtype_t dtype) { return (unsigned)dtype < RI_DTYPES; }

bool ri_redop_ok(ring_redop_t redop) { return (unsigned)redop < RI_REDOPS; }

bool ri_dtype_is_float(ring_dtype_t dtype) { return ri_dtype_ok(dtype) && dtype >= RING_FLOAT; }

bool ri_redop_fits(ring_dtype_t dtype, ring_redop_t redop)
{
    return ri_dtype_ok(dtype) && ri_redop_ok(redop) && (redop <= RING_AVG || !ri_dtype_is_float(dtype));
}

size_t ri_dtype_size(ring_dtype_t dtype) { return ri_dtype_ok(dtype) ? dtypes[dtype].size : 0; }

const char *ri_dtype_name(ring_dtype_t dtype) { return ri_dtype_ok(dtype) ? dtypes[dtype].name : NULL; }

const char *ri_redop_name(ring_redop_t redop) { return ri_redop_ok(redop) ? redops[redop] : NULL; }
