/* What the files of the emulated CUDA driver share: its objects, and how a function is written.
 *
 * A function is written with CU_CALL: the macro makes the exported function, which takes the
 * model's lock, counts the call, lets an ordered fault answer, checks what the call needs (see
 * calls.def), and gives the lock back; the body that follows sees none of that.  CU_CALL_PTSZ and
 * CU_CALL_PTDS also export the variant whose default stream is the thread's own; the stream
 * parameter must be called `stream`.
 */
#ifndef UMFPY_CUDA_DRIVER_H
#define UMFPY_CUDA_DRIVER_H

#include "../model/clock.h"
#include "../model/export.h"
#include "../model/fault.h"
#include "../model/lock.h"
#include "../model/pool.h"
#include "../model/queue.h"
#include "../model/settings.h"
#include "../model/virtual.h"
#include "graph_capture.h"

/* 13.0: functions of later versions do not exist here. */
#define CU_DRIVER_VERSION 13000

enum cu_call {
#define CALL(name, base, version, needs, cost, twin) CALL_##name,
#include "calls.def"
#undef CALL
    CU_CALLS
};

enum cu_needs { NOTHING, INIT, CONTEXT, UNSAFE, WAITING };

struct cu_call_info {
    const char *name; /* as exported, and as counted */
    const char *base; /* for cuGetProcAddress */
    int version;
    enum cu_needs needs;
    uint64_t cost;         /* nanoseconds */
    void *function, *twin; /* twin: the per-thread variant, or the same */
};

const struct cu_call_info *cu_call_info(int call);

/* Begin a call; anything but CUDA_SUCCESS is its answer, and the lock is not held. */
CUresult cu_enter(enum cu_call call);
CUresult cu_leave(CUresult result);

#define CU_CALL(name, parameters, arguments)                                                       \
    static CUresult name##_body parameters;                                                        \
    EMU_PUBLIC CUresult name parameters {                                                          \
        CUresult result = cu_enter(CALL_##name);                                                   \
        return result ? result : cu_leave(name##_body arguments);                                  \
    }                                                                                              \
    static CUresult name##_body parameters

#define CU_CALL_PTSZ(name, parameters, arguments)                                                  \
    EMU_PUBLIC CUresult name parameters;                                                           \
    EMU_PUBLIC CUresult name##_ptsz parameters {                                                   \
        if (!stream)                                                                               \
            stream = CU_STREAM_PER_THREAD;                                                         \
        return name arguments;                                                                     \
    }                                                                                              \
    CU_CALL(name, parameters, arguments)

/* Synchronous calls end before they return, on whichever default stream. */
#define CU_CALL_PTDS(name, parameters, arguments)                                                  \
    EMU_PUBLIC CUresult name parameters;                                                           \
    EMU_PUBLIC CUresult name##_ptds parameters { return name arguments; }                          \
    CU_CALL(name, parameters, arguments)

/* CUDA's word for what the model answered. */
CUresult cu_result(enum emu_status status);

struct CUstream_st {
    struct emu_object object;
    struct emu_queue queue;
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t id;
    struct cu_capturing capturing;
};

struct CUevent_st {
    struct emu_object object;
    CUcontext context;
    unsigned flags;
    bool recorded;
    uint64_t moment; /* on the virtual clock */
    struct emu_export *export;
    uint64_t capture;          /* it was last recorded in, or 0 ... */
    struct cu_nodes came_last; /* ... and after what */
};

#define CU_LIMITS 10

struct CUctx_st {
    struct emu_object object;
    CUdevice device;
    unsigned flags;
    unsigned references; /* of a primary context */
    bool primary;
    uint64_t id; /* a destroyed context's is never found again */
    size_t limits[CU_LIMITS];
    int cache, shared_config;
    uint32_t peers; /* bit set of devices with access enabled */
    struct CUstream_st legacy, per_thread;
};

/* device.c */
extern struct emu_settings cu_settings;
bool cu_is_initialised(void);
bool cu_is_device(CUdevice device);

/* context.c: the calling thread's current context, or NULL; what to answer where there is none. */
CUcontext cu_current(void);
CUresult cu_require_context(void);
CUcontext cu_find_context(CUcontext context);
void cu_contexts_close(void);

/* stream.c: a handle to its stream; special handles belong to the current context. */
CUresult cu_find_stream(CUstream handle, CUstream *stream);
CUresult cu_use_stream(CUstream handle, CUstream *stream); /* the same, to put work in it */
void cu_stream_init(CUstream stream, CUcontext context, unsigned flags, int priority);
void cu_stream_free(CUstream stream);
uint64_t cu_next_id(void);

/* event.c */
void cu_event_free(CUevent event);

/* Any stream, event or device was waited for. */
void cu_waited(void);

/* mempool.c */
CUmemoryPool cu_pool_handle(struct emu_pool *pool);
void cu_pools_close(void);

/* copy.c: what is to be done, from how CUDA says it. */
struct cu_fill {
    CUdeviceptr to;
    unsigned width; /* of a cell */
    uint32_t value;
    uint64_t count, rows, pitch;
};

CUresult cu_copy_work(const CUDA_MEMCPY2D *copy, CUcontext context, struct emu_work *work);
CUresult cu_fill_work(struct cu_fill fill, CUcontext context, struct emu_work *work);

/* memory.c: free whatever a context owns. */
void cu_free_owned(CUcontext context);

#endif
