/* types.c - docs/types.md: the types that a weight may have, from the table of base/types.h. Called
 * by tools/docs. */
#include "base/types.h"

#include <stdio.h>

int main(void) {
    printf("# Types of weights\n\nMade by `tools/types.c`. Each tensor of a file may have any of "
           "these that have a number there, mixed as one likes; weights stay as they are in the "
           "file, on the device too.\n\n"
           "| type | number in GGUF | elements a block | bytes a block | bits a weight |\n"
           "| --- | ---: | ---: | ---: | ---: |\n");
#define X(name, text, id, n, bytes, ...)             \
    printf("| %s | %s%.0d | %d | %d | %g |\n", text, \
           id < 0    ? "none"                        \
           : id == 0 ? "0"                           \
                     : "",                           \
           id < 0 ? 0 : id, n, bytes, 8.0 * (bytes) / (n));
    BASE_WEIGHT_LIST(X)
#undef X
    return 0;
}
