/* An ordered set of disjoint address ranges: from any address to its range in O(log n).
 *
 * A treap (Seidel and Aragon 1996) of nodes that the caller embeds, so that nothing here
 * allocates.  The same structure holds handles, as ranges of size 1.
 */
#ifndef UMFPY_MODEL_INDEX_H
#define UMFPY_MODEL_INDEX_H

#include "common.h"

struct emu_node {
    uint64_t base;
    uint64_t size;
    struct emu_node *left, *right;
    uint32_t priority;
};

struct emu_index {
    struct emu_node *root;
};

/* Add `node`; false, with nothing changed, where it overlaps another. */
bool emu_index_insert(struct emu_index *index, struct emu_node *node);

void emu_index_remove(struct emu_index *index, struct emu_node *node);

/* The range that contains `address`, or NULL. */
struct emu_node *emu_index_find(const struct emu_index *index, uint64_t address);

/* The first range that starts at or after `address`, or NULL. */
struct emu_node *emu_index_next(const struct emu_index *index, uint64_t address);

#endif
