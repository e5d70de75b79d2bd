/* session.h - turns of a session, for the tasks that run them. */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/engine.h"

/* Takes a whole prompt, with the media of its places: checks it, keeps of the caches what it shares
 * with it (at most reuse_max positions), leaves the session idle with n_fed positions done. The
 * session stays as it was if the prompt is refused. */
beryl_status session_turn_begin(beryl_session *s, const int32_t *tokens, size_t n,
                                const media_list *media, size_t reuse_max, uint32_t *n_reused,
                                beryl_error *error);
/* Results still on their way are dropped. */
void session_turn_end(beryl_session *s);

#endif
