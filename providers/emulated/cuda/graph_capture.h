/* Captures: what is put in a stream becomes a graph instead of being done.
 *
 * Rules, with their sources:
 *   CUDA Driver API, "Stream Management", cuStreamBeginCapture to cuStreamGetCaptureInfo: modes,
 * who may end a capture, the legacy stream; CUDA C++ Programming Guide, "Creating a Graph Using
 * Stream Capture": what is prohibited, what invalidates, how other streams join; CUDA Driver API,
 * "Data types used by CUDA driver", CUresult: which error stands for what. Where these are silent,
 * what is done is said to be a choice.
 */
#ifndef UMFPY_CUDA_GRAPH_CAPTURE_H
#define UMFPY_CUDA_GRAPH_CAPTURE_H

#include "graph.h"

struct cu_capture {
    struct cu_capture *next;
    uint64_t id;
    uint64_t thread; /* that began it */
    CUstreamCaptureMode mode;
    CUgraph graph;
    CUstream origin;  /* where it began, and must end */
    CUstream streams; /* all that joined, the origin too */
    bool invalid;     /* a rule was broken: it can only be ended */
};

/* A stream's part in it. */
struct cu_capturing {
    struct cu_capture *in; /* NULL: what is put in the stream is done */
    CUstream next;         /* of the same capture */
    struct cu_nodes last;  /* what the next node comes after */
    CUgraphEdgeData *edges;
};

extern struct cu_capture *cu_captures; /* all that are open */

/* capture.c: do the work, or write it down where the stream captures. */
CUresult cu_submit(CUstream stream, const struct emu_work *work);
void cu_capture_leave(CUstream stream); /* it is destroyed */

/* graph_join.c: events carry a capture from stream to stream. */
void cu_capture_join(struct cu_capture *capture, CUstream stream);
CUresult cu_capture_record(CUevent event, CUstream stream);
CUresult cu_capture_wait(CUstream stream, CUevent event);
bool cu_capture_all_joined(const struct cu_capture *capture);

/* graph_rules.c: may this be called now?  A refusal invalidates the captures that forbid it. */
uint64_t cu_this_thread(void);
bool cu_is_legacy(CUstream stream);
bool cu_legacy_is_blocked(CUcontext context);
CUresult cu_check_unsafe(void);                      /* a call that no capture sees */
CUresult cu_check_legacy(CUcontext context);         /* use of the legacy stream */
CUresult cu_check_context(CUcontext context);        /* waiting for everything in it */
CUresult cu_check_use(CUstream stream);              /* work for a stream */
CUresult cu_check_outside(CUstream stream);          /* what a capturing stream cannot do */
CUresult cu_check_event(CUevent event);              /* asking for an event, or waiting for it */
CUresult cu_not_captured(CUstream stream, int call); /* hardware can; this driver cannot */

#endif
