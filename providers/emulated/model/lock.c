#include "lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool watching, orphan;

void emu_lock(void) { pthread_mutex_lock(&lock); }

void emu_unlock(void) { pthread_mutex_unlock(&lock); }

bool emu_is_orphan(void) { return orphan; }

/* Forking with the lock held leaves the child a model in one piece, and a lock it can open. */
static void before_fork(void) { emu_lock(); }

static void after_fork_in_parent(void) { emu_unlock(); }

static void after_fork_in_child(void) {
    orphan = watching;
    emu_unlock();
}

void emu_lock_watch_forks(void) { watching = true; }

__attribute__((constructor)) static void install(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
