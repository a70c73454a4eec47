#include "queue.h"

#include "clock.h"
#include "lock.h"

static uint64_t busy_until[EMU_DEVICES];

static struct emu_side row_of(struct emu_side side, uint64_t pitch, uint64_t row) {
    side.address += pitch * row;
    return side;
}

static enum emu_status check_copy(const struct emu_copy_work *copy) {
    for (uint64_t row = 0; row < copy->rows; row++)
        if (!emu_is_usable(row_of(copy->to, copy->to_pitch, row), copy->size, EMU_WRITE) ||
            !emu_is_usable(row_of(copy->from, copy->from_pitch, row), copy->size, EMU_READ))
            return EMU_INVALID;
    return EMU_OK;
}

static void run_copy(const struct emu_copy_work *copy) {
    for (uint64_t row = 0; row < copy->rows; row++)
        emu_copy(row_of(copy->to, copy->to_pitch, row), row_of(copy->from, copy->from_pitch, row),
                 copy->size);
}

static enum emu_status check_fill(const struct emu_fill_work *fill) {
    if (fill->count > UINT64_MAX / fill->width || !emu_is_multiple(fill->to.address, fill->width) ||
        (fill->rows > 1 && !emu_is_multiple(fill->pitch, fill->width)))
        return EMU_INVALID;
    for (uint64_t row = 0; row < fill->rows; row++)
        if (!emu_is_usable(row_of(fill->to, fill->pitch, row), fill->count * fill->width,
                           EMU_WRITE))
            return EMU_INVALID;
    return EMU_OK;
}

static void run_fill(const struct emu_fill_work *fill) {
    for (uint64_t row = 0; row < fill->rows; row++)
        emu_fill(row_of(fill->to, fill->pitch, row), fill->width, fill->value, fill->count);
}

enum emu_status emu_work_check(const struct emu_work *work) {
    switch (work->kind) {
    case EMU_WORK_COPY:
        return check_copy(&work->copy);
    case EMU_WORK_FILL:
        return check_fill(&work->fill);
    case EMU_WORK_CALL:
        return EMU_OK;
    }
    return EMU_INVALID;
}

/* Everything was checked before the first row moves. */
static void run(const struct emu_work *work) {
    switch (work->kind) {
    case EMU_WORK_COPY:
        run_copy(&work->copy);
        break;
    case EMU_WORK_FILL:
        run_fill(&work->fill);
        break;
    case EMU_WORK_CALL:
        /* The program may call the driver's own functions from other threads meanwhile. */
        emu_unlock();
        work->call.function(work->call.data);
        emu_lock();
    }
}

enum emu_status emu_queue_submit(struct emu_queue *queue, const struct emu_work *work) {
    unsigned device = queue->device;
    emu_queue_wait_for(queue, emu_clock_now());
    queue->end += work->cost;
    if (queue->end > busy_until[device])
        busy_until[device] = queue->end;
    enum emu_status status = emu_work_check(work);
    if (!status)
        run(work);
    return status;
}

void emu_queue_wait_for(struct emu_queue *queue, uint64_t moment) {
    if (queue->end < moment)
        queue->end = moment;
}

void emu_queue_finish(struct emu_queue *queue) { emu_clock_reach(queue->end); }

void emu_device_finish(unsigned device) { emu_clock_reach(busy_until[device]); }
