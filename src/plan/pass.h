/* pass.h - graph passes: what runs between building and lowering. Each keeps the graph's values. */
#ifndef PLAN_PASS_H
#define PLAN_PASS_H

#include "plan/exec.h"

/* Dead nodes, then fusion by pattern, as far as the device can run the fused forms. */
lower_settings lower_settings_of(const graph_exec_options *options);
beryl_status graph_pass_all(graph *g, graph_store *store, const graph_exec_options *options,
                            beryl_error *error);
/* Marks nodes whose results nobody needs. */
void graph_pass_dead(graph *g);
/* Parts of a concat that products make: each stores its own where it belongs
 * (plan/pass_concat.c). Before all that join. */
void graph_pass_concats(graph *g);
/* Sums of two products, one of them of low rank: as one, where the device adds it on the way
 * (plan/pass_low.c). */
void graph_pass_low(graph *g, graph_store *store, const graph_exec_options *options);
/* Joins the operations of a decode layer into few dispatches (plan/pass_fuse.c). */
beryl_status graph_pass_fuse(graph *g, graph_store *store, const graph_exec_options *options,
                             beryl_error *error);
/* Joins trees of pointwise operations and rows (plan/pass_chain.c), with the products
 * that they stand at the end of. */
beryl_status graph_pass_chains(graph *g, graph_store *store, beryl_error *error);
/* Trees whose results states become store them in place, several to a dispatch
 * (plan/pass_update.c): after the chains. */
beryl_status graph_pass_updates(graph *g, graph_store *store, beryl_error *error);
/* What products round to halves is stored as halves (plan/pass_narrow.c): after all that join. */
void graph_pass_narrow(graph *g, const graph_store *store, const graph_exec_options *options);
/* Does a node between the members, itself none of them, change a state that a member before it
 * reads? Joined they would run after it. members rise. */
bool graph_pass_changes_between(const graph *g, const uint32_t *members, uint32_t n);
/* Puts a joined node (fused_kind `kind`) in the place of the last of the members, which rise.
 * false: no memory. */
bool graph_pass_join(graph *g, const uint32_t *members, uint32_t n, const graph_value *outs,
                     uint32_t n_out, uint32_t kind, const void *detail);

#endif
