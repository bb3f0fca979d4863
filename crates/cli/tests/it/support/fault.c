/* Faults that no folder and no server can have: a resolver, a disk that does not answer, a disk that is full.
 *
 * FAULT names the fault, FAULT_SEEN a file that appears when it is met, and FAULT_WHEN, if set, a file without which
 * nothing goes wrong yet. Only calls on the store's files are hit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is(const char *fault) {
  const char *named = getenv("FAULT");
  const char *when = getenv("FAULT_WHEN");
  if (!named || strcmp(named, fault)) return 0;
  return !when || access(when, F_OK) == 0;
}

static void seen(void) {
  const char *path = getenv("FAULT_SEEN");
  int fd = path ? open(path, O_CREAT | O_WRONLY, 0666) : -1;
  if (fd >= 0) close(fd);
}

static void hang(void) {
  seen();
  for (;;) pause();
}

static int is_store(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  if (len < 0) return 0;
  path[len] = 0;
  return strstr(path, "store.db") != NULL;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void reading(int fd) {
  if (is("read_hangs") && is_store(fd)) hang();
}

static int writing(int fd) {
  if (is("write_hangs") && is_store(fd)) hang();
  if (!is("disk_full") || !is_store(fd)) return 0;
  seen();
  errno = ENOSPC;
  return -1;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  REAL(getaddrinfo);
  if (is("resolver_hangs")) hang();
  return real(node, service, hints, result);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  REAL(pthread_create);
  static int made;
  const char *max = getenv("FAULT_AFTER");
  if (is("no_more_threads") && max && made++ >= atoi(max)) return EAGAIN;
  return real(thread, attributes, run, argument);
}

ssize_t read(int fd, void *buffer, size_t len) {
  REAL(read);
  reading(fd);
  return real(fd, buffer, len);
}

ssize_t pread64(int fd, void *buffer, size_t len, off64_t at) {
  REAL(pread64);
  reading(fd);
  return real(fd, buffer, len, at);
}

ssize_t write(int fd, const void *buffer, size_t len) {
  REAL(write);
  return writing(fd) ? -1 : real(fd, buffer, len);
}

ssize_t pwrite64(int fd, const void *buffer, size_t len, off64_t at) {
  REAL(pwrite64);
  return writing(fd) ? -1 : real(fd, buffer, len, at);
}

int fdatasync(int fd) {
  REAL(fdatasync);
  if (is("sync_hangs") && is_store(fd)) hang();
  return real(fd);
}

int fsync(int fd) {
  REAL(fsync);
  if (is("sync_hangs") && is_store(fd)) hang();
  return real(fd);
}
