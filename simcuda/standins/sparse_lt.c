// SPDX-License-Identifier: Apache-2.0
// cuSPARSELt's products, whose streams come in an array.
#include "simcuda/standins/standin.h"

BERM_EXPORT int cusparseLtMatmul(const void *library, const void *plan, const void *alpha,
                                 const void *a, const void *b, const void *beta, const void *c,
                                 void *d, void *space, berm_cu_stream_t *streams, int count);
BERM_EXPORT int cusparseLtMatmulSearch(const void *library, void *plan, const void *alpha,
                                       const void *a, const void *b, const void *beta,
                                       const void *c, void *d, void *space,
                                       berm_cu_stream_t *streams, int count);

static int product(const char *name, berm_cu_stream_t *streams, int count) {
    standin_hit("cusparseLt", name);
    standin_work(streams != NULL && count > 0 ? streams[0] : NULL);
    return 0;
}

int cusparseLtMatmul(const void *library, const void *plan, const void *alpha, const void *a,
                     const void *b, const void *beta, const void *c, void *d, void *space,
                     berm_cu_stream_t *streams, int count) {
    (void)library, (void)plan, (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d;
    (void)space;
    return product("cusparseLtMatmul", streams, count);
}

int cusparseLtMatmulSearch(const void *library, void *plan, const void *alpha, const void *a,
                           const void *b, const void *beta, const void *c, void *d, void *space,
                           berm_cu_stream_t *streams, int count) {
    (void)library, (void)plan, (void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d;
    (void)space;
    return product("cusparseLtMatmulSearch", streams, count);
}
