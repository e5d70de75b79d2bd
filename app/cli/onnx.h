/* onnx.h - an ONNX file as a graph that runs, for the commands that take one. */
#ifndef CLI_ONNX_H
#define CLI_ONNX_H

#include "beryl_onnx.h"
#include "cli.h"

typedef struct cli_onnx {
    beryl_graph *g;
    char *file; /* [size], owned */
    size_t size;
} cli_onnx;

/* Reads the file and builds its graph, on the device and with the sizes that flags say. `how` has
 * neither folder nor extents. Closed after a failure too. */
beryl_status cli_onnx_open(cli *c, const char *path, beryl_onnx_options how, cli_onnx *m,
                           beryl_error *error);
void cli_onnx_close(cli *c, cli_onnx *m);
beryl_status cli_onnx_compile(cli_onnx *m, beryl_error *error);
beryl_status cli_onnx_run(cli_onnx *m, beryl_error *error); /* and waits */

#endif
