/* task.c - tasks: long calls in steps, with a queue of events. */
#include "base/error.h"
#include "engine/engine.h"

beryl_status task_open(beryl_engine *engine, beryl_session *session,
                       beryl_status (*step)(beryl_task *), beryl_task **out, beryl_error *error) {
    *out = NULL;
    beryl_task *task = base_heap_take(&engine->heap, sizeof *task);
    if (!task) return base_no_memory(error);
    task->engine = engine;
    task->session = session;
    task->step = step;
    base_text_init(&task->text, &engine->heap);
    if (session) session->task = task;
    *out = task;
    return BERYL_OK;
}

beryl_status task_put(beryl_task *task, beryl_event event, const char *text, size_t size) {
    task_event *e = base_vec_add(&task->engine->heap, &task->events);
    if (!e) return base_no_memory(&task->error);
    *e = (task_event){event, task->text.size};
    e->event.text_size = size;
    base_text_add(&task->text, text ? text : "", size);
    base_text_add(&task->text, "", 1); /* a NUL between texts */
    return task->text.failed ? base_no_memory(&task->error) : BERYL_OK;
}

beryl_status task_progress(beryl_task *task, const char *what, uint64_t done, uint64_t total) {
    const beryl_event event = {
        .kind = BERYL_EVENT_PROGRESS, .what = what, .done = done, .total = total, .token = -1};
    const beryl_status status = task_put(task, event, NULL, 0);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

bool task_is_cancelled(const beryl_task *task) {
    return __atomic_load_n(&task->fate, __ATOMIC_ACQUIRE) == TASK_CANCELLED;
}

/* Of cancelling and settling, what comes first holds. */
static bool fate_set(beryl_task *task, int fate) {
    int open = TASK_OPEN;
    return __atomic_compare_exchange_n(&task->fate, &open, fate, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           open == fate;
}

beryl_status task_settle(beryl_task *task) {
    return fate_set(task, TASK_SETTLED) ? BERYL_OK
                                        : base_fail(&task->error, BERYL_CANCELLED, "cancelled");
}

static bool take_event(beryl_task *task, beryl_event *event) {
    if (task->n_taken == task->events.count) {
        task->events.count = task->n_taken = 0;
        base_text_clear(&task->text);
        return false;
    }
    task_event *e = &task->events.data[task->n_taken++];
    e->event.text = task->text.data + e->text_at;
    if (event) *event = e->event;
    return true;
}

beryl_status beryl_task_step(beryl_task *task, beryl_event *event) {
    if (!task) return BERYL_MISUSE;
    if (event) *event = (beryl_event){.token = -1};
    if (take_event(task, event)) return BERYL_EVENT;
    if (task->ended) return task->status;
    beryl_status status = task->step(task);
    if (status == BERYL_PENDING) return status;
    if (status == BERYL_OK) status = task_settle(task);
    if (status != BERYL_EVENT) {
        fate_set(task, TASK_SETTLED);
        task->ended = true;
        task->status = status;
        if (status == BERYL_OK) task->error = (beryl_error){0};
        if (status != BERYL_OK && task->error.code != status)
            base_fail(&task->error, status, "%s", beryl_status_text(status));
    }
    return take_event(task, event) ? BERYL_EVENT : status == BERYL_EVENT ? BERYL_PENDING : status;
}

beryl_status beryl_wait(beryl_task *task, beryl_event *event) {
    for (;;) {
        beryl_status status = beryl_task_step(task, event);
        if (status != BERYL_PENDING) return status;
        /* the next step reports it */
        if (engine_sleep(task->engine, &task->error) != BERYL_OK) continue;
    }
}

const beryl_error *beryl_task_error(const beryl_task *task) {
    return task ? &task->error : NULL;
}

const beryl_result *beryl_task_result(const beryl_task *task) {
    return task ? &task->result : NULL;
}

bool beryl_cancel(beryl_task *task) {
    return task && fate_set(task, TASK_CANCELLED);
}

void beryl_task_close(beryl_task *task) {
    if (!task) return;
    if (task->close) task->close(task);
    if (task->session && task->session->task == task) task->session->task = NULL;
    base_heap *heap = &task->engine->heap;
    base_vec_fini(heap, &task->events);
    base_text_fini(&task->text);
    base_heap_give(heap, task, sizeof *task);
}
