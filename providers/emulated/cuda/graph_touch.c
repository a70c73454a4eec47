/* Does a node's memory still exist?
 *
 * A graph holds addresses, and hardware runs it on whatever is there by then.  Here the memory is
 * remembered by number, so that an address that was freed and given to somebody else is told from
 * the memory that the node was made for.  Mapped memory is not held to that: unmapping it and
 * mapping other memory at the same addresses is what reservations are for.  Nor is memory of the
 * program's own, of which the driver knows nothing.
 */
#include "driver.h"

static uint64_t number_of(struct emu_side side) {
    struct emu_memory *memory = emu_memory_find(side.address);
    bool lasting =
        memory && memory->object.kind != EMU_MAPPING && memory->object.kind != EMU_REGISTERED;
    return lasting ? memory->id : 0;
}

struct cu_touched cu_touched_by(const struct cu_task *task) {
    struct cu_touched touched = {0, 0};
    if (task->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        touched.to = number_of(task->work.copy.to);
        touched.from = number_of(task->work.copy.from);
    } else if (task->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        touched.to = number_of(task->work.fill.to);
    }
    return touched;
}

bool cu_node_may_run(const struct CUgraphNode_st *node) {
    if (node->task.type == CU_GRAPH_NODE_TYPE_EMPTY)
        return true;
    struct cu_touched now = cu_touched_by(&node->task);
    return now.to == node->touched.to && now.from == node->touched.from &&
           !emu_work_check(&node->task.work);
}
