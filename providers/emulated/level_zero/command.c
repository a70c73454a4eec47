/* Commands: what each does when its turn comes. */
#include "command.h"

#include <stdlib.h>
#include <string.h>

void lz_commands_init(struct lz_commands *commands) {
    commands->first = NULL;
    commands->last = &commands->first;
}

void lz_commands_add(struct lz_commands *commands, struct lz_command *command) {
    command->next = NULL;
    *commands->last = command;
    commands->last = &command->next;
}

struct lz_command *lz_commands_take(struct lz_commands *commands) {
    struct lz_command *first = commands->first;
    if (first && !(commands->first = first->next))
        commands->last = &commands->first;
    return first;
}

void lz_commands_clear(struct lz_commands *commands) {
    struct lz_command *command;
    while ((command = lz_commands_take(commands)))
        free(command);
}

struct lz_command *lz_command_make(const struct lz_command *like, uint32_t waits,
                                   const ze_event_handle_t *events) {
    struct lz_command *made = malloc(sizeof *made + waits * sizeof *events);
    if (!made)
        return NULL;
    memcpy(made, like, sizeof *made);
    made->waits = waits;
    if (waits)
        memcpy(made->wait, events, waits * sizeof *events);
    return made;
}

static bool is_on_device(uint64_t address) {
    struct emu_memory *memory = emu_memory_find(address);
    return memory && memory->object.kind != EMU_HOST_MEMORY && memory->object.kind != EMU_MANAGED;
}

static uint64_t cost_of(const struct lz_command *command) {
    bool inside =
        is_on_device(command->to) && (command->kind == LZ_FILL || is_on_device(command->from));
    return inside ? emu_cost_inside(command->size) : emu_cost_bus(command->size);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Copy what was checked. */
static bool copy(struct emu_queue *queue, uint64_t to, uint64_t from, uint64_t size,
                 uint64_t cost) {
    struct emu_work work = {
        .kind = EMU_WORK_COPY,
        .cost = cost,
        .copy = {.to = {to, queue->device, false},
                 .from = {from, queue->device, false},
                 .size = size,
                 .rows = 1},
    };
    return !size || !emu_queue_submit(queue, &work);
}

static bool fill_bytes(struct emu_queue *queue, const struct lz_command *command, uint64_t cost) {
    struct emu_work work = {
        .kind = EMU_WORK_FILL,
        .cost = cost,
        .fill = {.to = {command->to, queue->device, false},
                 .count = command->size,
                 .rows = 1,
                 .width = 1,
                 .value = command->pattern[0]},
    };
    return !command->size || !emu_queue_submit(queue, &work);
}

/* Write the pattern once and then what is written so far behind itself, until it reaches. */
static bool fill(struct emu_queue *queue, const struct lz_command *command, uint64_t cost) {
    if (command->pattern_size == 1)
        return fill_bytes(queue, command, cost);
    uint64_t done = least(command->pattern_size, command->size);
    if (!copy(queue, command->to, (uintptr_t)command->pattern, done, cost))
        return false;
    while (done < command->size) {
        uint64_t more = least(done, command->size - done);
        if (!copy(queue, command->to + done, command->to, more, 0))
            return false;
        done += more;
    }
    return true;
}

static bool is_usable(uint64_t address, uint64_t size, uint8_t access) {
    return emu_is_usable((struct emu_side){.address = address}, size, access);
}

bool lz_command_is_possible(const struct lz_command *command) {
    switch (command->kind) {
    case LZ_COPY:
        return is_usable(command->to, command->size, EMU_WRITE) &&
               is_usable(command->from, command->size, EMU_READ);
    case LZ_FILL:
        return is_usable(command->to, command->size, EMU_WRITE);
    default:
        return true;
    }
}

static bool reset_event(ze_event_handle_t event) {
    if (!lz_find(LZ_EVENT, event))
        return false;
    event->signalled = false;
    return true;
}

static bool signal_fence(ze_fence_handle_t fence, uint64_t moment) {
    if (!lz_find(LZ_FENCE, fence))
        return false;
    fence->signalled = true;
    fence->ended = moment;
    return true;
}

static bool act(struct emu_queue *queue, const struct lz_command *command) {
    if (!lz_command_is_possible(command))
        return false;
    switch (command->kind) {
    case LZ_COPY:
        return copy(queue, command->to, command->from, command->size, cost_of(command));
    case LZ_FILL:
        return fill(queue, command, cost_of(command));
    case LZ_RESET_EVENT:
        return reset_event(command->reset);
    case LZ_SIGNAL_FENCE:
        return signal_fence(command->fence, queue->end);
    default:
        return true;
    }
}

/* An event that is gone holds nothing back, but fails the command. */
bool lz_command_is_ready(const struct lz_command *command) {
    for (uint32_t i = 0; i < command->waits; i++)
        if (lz_find(LZ_EVENT, command->wait[i]) && !command->wait[i]->signalled)
            return false;
    return true;
}

bool lz_command_run(const struct lz_command *command, struct emu_queue *queue) {
    for (uint32_t i = 0; i < command->waits; i++) {
        if (!lz_find(LZ_EVENT, command->wait[i]))
            return false;
        emu_queue_wait_for(queue, command->wait[i]->ended);
    }
    emu_queue_wait_for(queue, emu_clock_now());
    uint64_t began = queue->end;
    if (!act(queue, command))
        return false;
    if (!command->signal)
        return true;
    if (!lz_find(LZ_EVENT, command->signal))
        return false;
    command->signal->signalled = true;
    command->signal->began = began;
    command->signal->ended = queue->end;
    return true;
}
