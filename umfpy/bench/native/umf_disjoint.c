/* UMF's disjoint pool over simulated memory, in the shape of CuPy's CFunctionAllocator. */
#include "simulated.h"

#include <stddef.h>

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/pools/pool_disjoint.h>

struct disjoint_params {
    uint64_t slab_min_size;
    uint64_t max_poolable_size;
    uint64_t capacity;
    uint64_t min_bucket_size;
};

/* A load and a store, not an atomic addition: it costs UMF nothing, and loses a count only when
   two threads grow the pool at the same moment, which is never where the counts are reported. */
static uint64_t add(_Atomic uint64_t *counter, uint64_t by) {
    uint64_t sum = atomic_load_explicit(counter, memory_order_relaxed) + by;
    atomic_store_explicit(counter, sum, memory_order_relaxed);
    return sum;
}

static umf_result_t sim_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    struct simulated *sim = provider;
    uint64_t unit = alignment > sim->page ? alignment : sim->page;
    uint64_t span = (size + sim->page - 1) / sim->page * sim->page + (unit - sim->page);
    uint64_t start = atomic_fetch_add(&sim->next, span);
    *ptr = (void *)((start + unit - 1) / unit * unit);
    add(&sim->allocs, 1);
    uint64_t held = add(&sim->held, size);
    if (held > atomic_load_explicit(&sim->peak, memory_order_relaxed))
        atomic_store_explicit(&sim->peak, held, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_free(void *provider, void *ptr, size_t size) {
    struct simulated *sim = provider;
    (void)ptr;
    add(&sim->frees, 1);
    add(&sim->held, -(uint64_t)size);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_initialize(const void *params, void **provider) {
    *provider = (void *)params;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_finalize(void *provider) {
    (void)provider;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_error(void *provider, const char **message, int32_t *code) {
    (void)provider;
    *message = "";
    *code = 0;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_recommended_page(void *provider, size_t size, size_t *page) {
    (void)size;
    *page = ((struct simulated *)provider)->page;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_min_page(void *provider, const void *ptr, size_t *page) {
    (void)ptr;
    *page = ((struct simulated *)provider)->page;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_name(void *provider, const char **name) {
    (void)provider;
    *name = "simulated";
    return UMF_RESULT_SUCCESS;
}

static umf_result_t sim_cache_line(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ops_t sim_ops = {
    .version = UMF_PROVIDER_OPS_VERSION_CURRENT,
    .initialize = sim_initialize,
    .finalize = sim_finalize,
    .alloc = sim_alloc,
    .free = sim_free,
    .get_last_native_error = sim_error,
    .get_recommended_page_size = sim_recommended_page,
    .get_min_page_size = sim_min_page,
    .get_name = sim_name,
    .get_cache_line_size = sim_cache_line,
};

static umf_result_t make_params(const struct disjoint_params *from,
                                umf_disjoint_pool_params_handle_t *params) {
    umf_result_t result = umfDisjointPoolParamsCreate(params);
    if (result == UMF_RESULT_SUCCESS)
        result = umfDisjointPoolParamsSetSlabMinSize(*params, from->slab_min_size);
    if (result == UMF_RESULT_SUCCESS)
        result = umfDisjointPoolParamsSetMaxPoolableSize(*params, from->max_poolable_size);
    if (result == UMF_RESULT_SUCCESS)
        result = umfDisjointPoolParamsSetCapacity(*params, from->capacity);
    if (result == UMF_RESULT_SUCCESS)
        result = umfDisjointPoolParamsSetMinBucketSize(*params, from->min_bucket_size);
    return result;
}

/* Both return a umf_result_t.  `sim` must outlive the pool. */
int bench_disjoint_create(struct simulated *sim, const struct disjoint_params *from,
                          umf_memory_pool_handle_t *pool) {
    umf_disjoint_pool_params_handle_t params = NULL;
    umf_memory_provider_handle_t provider = NULL;
    umf_result_t result = make_params(from, &params);
    if (result == UMF_RESULT_SUCCESS)
        result = umfMemoryProviderCreate(&sim_ops, sim, &provider);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolCreate(umfDisjointPoolOps(), provider, params,
                               UMF_POOL_CREATE_FLAG_OWN_PROVIDER, pool);
        if (result != UMF_RESULT_SUCCESS)
            umfMemoryProviderDestroy(provider);
    }
    if (params != NULL)
        umfDisjointPoolParamsDestroy(params);
    return result;
}

int bench_disjoint_destroy(umf_memory_pool_handle_t pool) { return umfPoolDestroy(pool); }

void *bench_disjoint_malloc(void *param, size_t size, int device) {
    (void)device;
    return umfPoolMalloc(param, size);
}

void bench_disjoint_free(void *param, void *ptr, int device) {
    (void)device;
    umfPoolFree(param, ptr);
}
