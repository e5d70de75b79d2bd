/* folder.h - folders that only this user and root can change, held open by descriptor.
 *
 * What lies in such a folder is what one of the two put there, and stays so while it is open:
 * nobody else can swap the folder, or one above it, for another. So compiled code may be taken from
 * it.
 */
#ifndef DEVICE_DRIVER_FOLDER_H
#define DEVICE_DRIVER_FOLDER_H

#include "base/memory.h"

/* Opens a folder by its absolute path, part by part. Each folder on the way, also of what a link
 * stands for, belongs to root or this user, and others cannot write to it unless it is sticky
 * (/tmp: what is ours in it stays ours); each link belongs to one of the two. Others cannot
 * write to the last one at all. make: what is missing is made, for this user alone. A
 * descriptor, or -1 with the folder at fault in `error`: NOT_FOUND, BAD_FILE (not safe) or IO. */
int driver_folder_open(const char *path, bool make, beryl_error *error);
/* openat that is not interrupted, closed in programs that are started; mode: of a file that is
 * made. */
int driver_openat(int folder, const char *name, int flags, unsigned mode);
/* A regular file of that folder for reading; never waits for a pipe, follows no link. NOT_FOUND,
 * BAD_FILE (no regular file, or others can write it) or IO. */
int driver_file_open(int folder, const char *name, uint64_t *size, beryl_error *error);
/* Reads all of [0, size); false: it is shorter, or errno. */
bool driver_file_read(int file, void *to, uint64_t offset, size_t size);
/* Makes a file of that folder, for this user alone, and writes it. 0, or what errno was: then no
 * file is left. Past a limit of file sizes (ulimit -f) this is EFBIG and no signal. */
int driver_file_make(int folder, const char *name, const void *const *parts, const size_t *sizes,
                     int n_part);
int driver_file_write(int file, const void *data, size_t size); /* 0 or errno, likewise */
/* Calls `each` with the name of every entry but "." and ".."; it may remove the entry. */
void driver_folder_each(int folder, void (*each)(void *user, int folder, const char *name),
                        void *user);

#endif
