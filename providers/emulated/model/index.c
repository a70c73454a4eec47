#include "index.h"

/* Priorities only have to be spread; a fixed sequence keeps runs repeatable. */
static uint32_t next_priority(void) {
    static uint32_t state = 0x9e3779b9u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static struct emu_node *merge(struct emu_node *low, struct emu_node *high) {
    if (!low)
        return high;
    if (!high)
        return low;
    if (low->priority > high->priority) {
        low->right = merge(low->right, high);
        return low;
    }
    high->left = merge(low, high->left);
    return high;
}

static void split(struct emu_node *tree, uint64_t base, struct emu_node **low,
                  struct emu_node **high) {
    if (!tree) {
        *low = *high = NULL;
    } else if (tree->base < base) {
        split(tree->right, base, &tree->right, high);
        *low = tree;
    } else {
        split(tree->left, base, low, &tree->left);
        *high = tree;
    }
}

/* The last range that starts at or before `address`. */
static struct emu_node *floor_of(const struct emu_index *index, uint64_t address) {
    struct emu_node *best = NULL;
    for (struct emu_node *node = index->root; node;) {
        if (node->base <= address) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

struct emu_node *emu_index_find(const struct emu_index *index, uint64_t address) {
    struct emu_node *node = floor_of(index, address);
    return node && address - node->base < node->size ? node : NULL;
}

struct emu_node *emu_index_next(const struct emu_index *index, uint64_t address) {
    struct emu_node *best = NULL;
    for (struct emu_node *node = index->root; node;) {
        if (node->base >= address) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

bool emu_index_insert(struct emu_index *index, struct emu_node *node) {
    struct emu_node *next = emu_index_next(index, node->base);
    if (emu_index_find(index, node->base) || (next && next->base - node->base < node->size))
        return false;
    struct emu_node *low, *high;
    node->left = node->right = NULL;
    node->priority = next_priority();
    split(index->root, node->base, &low, &high);
    index->root = merge(merge(low, node), high);
    return true;
}

void emu_index_remove(struct emu_index *index, struct emu_node *node) {
    struct emu_node **link = &index->root;
    while (*link != node)
        link = node->base < (*link)->base ? &(*link)->left : &(*link)->right;
    *link = merge(node->left, node->right);
    node->left = node->right = NULL;
}
