/* Queues of work for a device: CUDA streams, Level Zero command queues.
 *
 * Work is described, not called, and given to emu_queue_submit, which today does it at once, in
 * the order of submission: every order that a queue and its events allow includes that one.  A
 * scheduler that delays work on purpose only has to keep the descriptions and do them later.
 * Time goes by on the virtual clock: each queue has an end, and whoever waits moves there.
 */
#ifndef UMFPY_MODEL_QUEUE_H
#define UMFPY_MODEL_QUEUE_H

#include "transfer.h"

struct emu_queue {
    unsigned device;
    uint64_t end; /* when, on the clock, what was submitted is done */
};

/* A copy of `rows` rows of `size` bytes; one row is a plain copy. */
struct emu_copy_work {
    struct emu_side to, from;
    uint64_t size, rows;
    uint64_t to_pitch, from_pitch;
};

struct emu_fill_work {
    struct emu_side to;
    uint64_t count, rows, pitch;
    unsigned width;
    uint32_t value;
};

enum emu_work_kind { EMU_WORK_COPY, EMU_WORK_FILL, EMU_WORK_CALL };

struct emu_work {
    enum emu_work_kind kind;
    uint64_t cost; /* nanoseconds on the queue */
    union {
        struct emu_copy_work copy;
        struct emu_fill_work fill;
        struct {
            void (*function)(void *); /* runs without the lock */
            void *data;
        } call;
    };
};

/* Could it be done now?  Every address is looked at; nothing is touched. */
enum emu_status emu_work_check(const struct emu_work *work);

enum emu_status emu_queue_submit(struct emu_queue *queue, const struct emu_work *work);

/* Everything submitted to `queue` so far comes after `moment`. */
void emu_queue_wait_for(struct emu_queue *queue, uint64_t moment);

/* Wait: move the clock to the end of the queue, or of all work on the device. */
void emu_queue_finish(struct emu_queue *queue);
void emu_device_finish(unsigned device);

#endif
