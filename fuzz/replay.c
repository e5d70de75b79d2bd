/* plan/replay.c - a fuzz target without a fuzzer: feeds every file of a folder to it once.
 *
 *   NAME-replay FOLDER       prints how many inputs there were; a finding is a crash or a
 *                            sanitizer's report */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)ftell(file);
    rewind(file);
    /* of the exact size, so that a sanitizer sees any step outside */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    int n = scandir(argv[1], &entries, NULL, alphasort), n_fed = 0;
    if (n < 0) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
            feed(path);
            n_fed++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("replay %s: %d inputs\n", argv[1], n_fed);
    return n_fed ? 0 : 1;
}
