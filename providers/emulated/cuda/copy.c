/* Copies and sets. */
#include "driver.h"

/* What a parameter of a copy may be. */
enum place { DEVICE, HOST };

/* Device parameters must be memory that the driver knows; host parameters may be anything. */
static struct emu_side side(uint64_t address, enum place place, CUcontext context) {
    return (struct emu_side){address, (unsigned)context->device, place == DEVICE};
}

static uint64_t cost(enum place to, enum place from, uint64_t size) {
    return to == DEVICE && from == DEVICE ? emu_cost_inside(size) : emu_cost_bus(size);
}

/* Where two copies differ: which sides are devices'. */
struct ends {
    uint64_t to, from;
    enum place to_place, from_place;
};

static CUresult copy_on(CUstream stream, struct ends ends, uint64_t size) {
    CUcontext context = stream->context;
    struct emu_work work = {.kind = EMU_WORK_COPY,
                            .cost = cost(ends.to_place, ends.from_place, size)};
    work.copy = (struct emu_copy_work){.to = side(ends.to, ends.to_place, context),
                                       .from = side(ends.from, ends.from_place, context),
                                       .size = size,
                                       .rows = 1};
    return cu_submit(stream, &work);
}

/* On the current context's default stream, and waited for. */
static CUresult copy(struct ends ends, uint64_t size) {
    CUstream stream = &cu_current()->legacy;
    CUresult result = copy_on(stream, ends, size);
    emu_queue_finish(&stream->queue);
    return result;
}

static CUresult copy_async(struct ends ends, uint64_t size, CUstream stream) {
    CUresult result = cu_use_stream(stream, &stream);
    return result ? result : copy_on(stream, ends, size);
}

/* Unified copies take each side for what it is. */
static struct ends unified(CUdeviceptr to, CUdeviceptr from) {
    return (struct ends){to, from, HOST, HOST};
}

CU_CALL_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size)) {
    return copy(unified(to, from), size);
}

CU_CALL_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
             (to, from, size, stream)) {
    return copy_async(unified(to, from), size, stream);
}

CU_CALL_PTDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size), (to, from, size)) {
    return copy((struct ends){to, (uintptr_t)from, DEVICE, HOST}, size);
}

CU_CALL_PTDS(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size), (to, from, size)) {
    return copy((struct ends){(uintptr_t)to, from, HOST, DEVICE}, size);
}

CU_CALL_PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size)) {
    return copy((struct ends){to, from, DEVICE, DEVICE}, size);
}

CU_CALL_PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream),
             (to, from, size, stream)) {
    return copy_async((struct ends){to, (uintptr_t)from, DEVICE, HOST}, size, stream);
}

CU_CALL_PTSZ(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream),
             (to, from, size, stream)) {
    return copy_async((struct ends){(uintptr_t)to, from, HOST, DEVICE}, size, stream);
}

CU_CALL_PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
             (to, from, size, stream)) {
    return copy_async((struct ends){to, from, DEVICE, DEVICE}, size, stream);
}

/* Between devices: each side is touched by the device of its own context. */
static CUresult copy_peer(struct emu_side to, struct emu_side from, uint64_t size,
                          CUstream stream) {
    struct emu_work work = {.kind = EMU_WORK_COPY, .cost = emu_cost_bus(size)};
    work.copy = (struct emu_copy_work){.to = to, .from = from, .size = size, .rows = 1};
    return cu_submit(stream, &work);
}

CU_CALL_PTDS(cuMemcpyPeer,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              size_t size),
             (to, to_context, from, from_context, size)) {
    if (!cu_find_context(to_context) || !cu_find_context(from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUstream stream = &to_context->legacy;
    CUresult result = cu_check_legacy(to_context);
    if (!result)
        result = cu_check_unsafe();
    if (result)
        return result;
    result =
        copy_peer(side(to, DEVICE, to_context), side(from, DEVICE, from_context), size, stream);
    emu_queue_finish(&stream->queue);
    return result;
}

CU_CALL_PTSZ(cuMemcpyPeerAsync,
             (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              size_t size, CUstream stream),
             (to, to_context, from, from_context, size, stream)) {
    if (!cu_find_context(to_context) || !cu_find_context(from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = cu_use_stream(stream, &stream);
    return result ? result
                  : copy_peer(side(to, DEVICE, to_context), side(from, DEVICE, from_context), size,
                              stream);
}

/* Rectangles. */

struct rectangle {
    uint64_t start, pitch;
    enum place place;
};

static bool locate(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t x, uint64_t y,
                   uint64_t pitch, struct rectangle *rectangle) {
    uint64_t base;
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = device;
        break;
    default: /* arrays are not built */
        return false;
    }
    if (pitch && y > (UINT64_MAX - base - x) / pitch)
        return false;
    *rectangle = (struct rectangle){base + y * pitch + x, pitch,
                                    type == CU_MEMORYTYPE_DEVICE ? DEVICE : HOST};
    return true;
}

/* A pitch of 0 stands for rows without gaps. */
static uint64_t pitch_of(size_t pitch, const CUDA_MEMCPY2D *copy) {
    return pitch ? pitch : copy->WidthInBytes;
}

static bool pitches_fit(const CUDA_MEMCPY2D *copy) {
    uint64_t rows = copy->Height;
    return pitch_of(copy->srcPitch, copy) >= copy->srcXInBytes + copy->WidthInBytes &&
           pitch_of(copy->dstPitch, copy) >= copy->dstXInBytes + copy->WidthInBytes &&
           (!rows || (pitch_of(copy->srcPitch, copy) <= (UINT64_MAX >> 1) / rows &&
                      pitch_of(copy->dstPitch, copy) <= (UINT64_MAX >> 1) / rows));
}

CUresult cu_copy_work(const CUDA_MEMCPY2D *copy, CUcontext context, struct emu_work *work) {
    struct rectangle to, from;
    if (!copy || !pitches_fit(copy) ||
        !locate(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                pitch_of(copy->srcPitch, copy), &from) ||
        !locate(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY,
                pitch_of(copy->dstPitch, copy), &to))
        return CUDA_ERROR_INVALID_VALUE;
    *work =
        (struct emu_work){.kind = EMU_WORK_COPY,
                          .cost = cost(to.place, from.place, copy->WidthInBytes * copy->Height)};
    work->copy = (struct emu_copy_work){.to = side(to.start, to.place, context),
                                        .from = side(from.start, from.place, context),
                                        .size = copy->WidthInBytes,
                                        .rows = copy->WidthInBytes ? copy->Height : 0,
                                        .to_pitch = to.pitch,
                                        .from_pitch = from.pitch};
    return CUDA_SUCCESS;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream) {
    struct emu_work work;
    CUresult result = cu_copy_work(copy, stream->context, &work);
    return result ? result : cu_submit(stream, &work);
}

static CUresult copy_2d_and_wait(const CUDA_MEMCPY2D *copy) {
    CUstream stream = &cu_current()->legacy;
    CUresult result = copy_2d(copy, stream);
    emu_queue_finish(&stream->queue);
    return result;
}

CU_CALL_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy)) { return copy_2d_and_wait(copy); }

CU_CALL_PTDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), (copy)) {
    return copy_2d_and_wait(copy);
}

CU_CALL_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream)) {
    CUresult result = cu_use_stream(stream, &stream);
    return result ? result : copy_2d(copy, stream);
}

/* Sets. */

CUresult cu_fill_work(struct cu_fill fill, CUcontext context, struct emu_work *work) {
    uint64_t row_bytes = fill.count * fill.width;
    if (fill.count > (UINT64_MAX >> 3) ||
        (fill.rows > 1 && (fill.pitch < row_bytes || fill.pitch > (UINT64_MAX >> 1) / fill.rows)))
        return CUDA_ERROR_INVALID_VALUE;
    *work =
        (struct emu_work){.kind = EMU_WORK_FILL, .cost = emu_cost_inside(row_bytes * fill.rows)};
    work->fill = (struct emu_fill_work){.to = side(fill.to, DEVICE, context),
                                        .count = fill.count,
                                        .rows = fill.count ? fill.rows : 0,
                                        .pitch = fill.pitch,
                                        .width = fill.width,
                                        .value = fill.value};
    return CUDA_SUCCESS;
}

static CUresult fill_on(CUstream stream, struct cu_fill fill) {
    struct emu_work work;
    CUresult result = cu_fill_work(fill, stream->context, &work);
    return result ? result : cu_submit(stream, &work);
}

static CUresult fill(struct cu_fill fill) {
    CUstream stream = &cu_current()->legacy;
    CUresult result = fill_on(stream, fill);
    emu_queue_finish(&stream->queue);
    return result;
}

static CUresult fill_async(struct cu_fill fill, CUstream stream) {
    CUresult result = cu_use_stream(stream, &stream);
    return result ? result : fill_on(stream, fill);
}

/* The four functions for one width of cell. */
#define CU_MEMSETS(bits, type)                                                                     \
    CU_CALL_PTDS(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count),                 \
                 (to, value, count)) {                                                             \
        return fill((struct cu_fill){to, bits / 8, value, count, 1, 0});                           \
    }                                                                                              \
    CU_CALL_PTSZ(cuMemsetD##bits##Async,                                                           \
                 (CUdeviceptr to, type value, size_t count, CUstream stream),                      \
                 (to, value, count, stream)) {                                                     \
        return fill_async((struct cu_fill){to, bits / 8, value, count, 1, 0}, stream);             \
    }                                                                                              \
    CU_CALL_PTDS(cuMemsetD2D##bits##_v2,                                                           \
                 (CUdeviceptr to, size_t pitch, type value, size_t count, size_t rows),            \
                 (to, pitch, value, count, rows)) {                                                \
        return fill((struct cu_fill){to, bits / 8, value, count, rows, pitch});                    \
    }                                                                                              \
    CU_CALL_PTSZ(                                                                                  \
        cuMemsetD2D##bits##Async,                                                                  \
        (CUdeviceptr to, size_t pitch, type value, size_t count, size_t rows, CUstream stream),    \
        (to, pitch, value, count, rows, stream)) {                                                 \
        return fill_async((struct cu_fill){to, bits / 8, value, count, rows, pitch}, stream);      \
    }

CU_MEMSETS(8, unsigned char)
CU_MEMSETS(16, unsigned short)
CU_MEMSETS(32, unsigned)
