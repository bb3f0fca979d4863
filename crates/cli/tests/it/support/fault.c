/* Faults below the command: calls on files that hang, are slow or fail, a resolver that never answers, threads that the
 * system has no more of. Loaded before the C library, by tests alone.
 *
 * FAULT_RULES names a file with a rule a line, which is read at each call: what is written to it takes effect at once,
 * and a call that hangs goes on when its rule is gone. FAULT_SEEN names a file that gets a line for each call that was
 * hit. A rule is
 *
 *   CALL PATH ACTION [skip=N] [times=N] [chance=PERCENT] [when=FILE] [in=keeper]
 *
 * CALL     open, read, write, sync, rmdir, unlink, mkdir, rename, list, truncate, resolve or thread
 * PATH     a part of the path of the file, its end if it is followed by $, or * for any
 * ACTION   hang, a time such as 300ms, or the name of an error: EIO, ENOSPC, EACCES, EAGAIN
 * skip     so many calls that match go through first
 * times    at most so many calls are hit after them
 * chance   of each call that matches; without it all are hit
 * when     nothing goes wrong before this file is there
 * in       the keeper of a shell is hit, and not the command
 *
 * Only the command and its keepers are hit, never what a model runs. Calls that do not go through the C library are not
 * seen: those of `rustix`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RULES_BYTES_MAX = 4096, RULES_MAX = 32, LOOK_AGAIN_MS = 2 };

static int rules_fd = -1, seen_fd = -1;
static int is_keeper;
/* How many calls each rule has let through, by its line. */
static atomic_int passed[RULES_MAX];
static atomic_uint_fast64_t random_state;

typedef struct {
  int line, skip, times, chance, delay_ms, error;
  char call[16], path[256], action[16], when[512];
} Rule;

static void sleep_ms(int ms) {
  struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
  syscall(SYS_nanosleep, &time, NULL);
}

/* Vigna's splitmix64. */
static unsigned below_hundred(void) {
  uint64_t z = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) % 100;
}

/* A descriptor that nobody else takes for one of the first. */
static int open_high(const char *variable, int flags) {
  const char *path = getenv(variable);
  if (!path) return -1;
  int fd = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  int high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 300);
  if (high < 0) return fd;
  syscall(SYS_close, fd);
  return high;
}

__attribute__((constructor)) static void begin(void) {
  char line[4096] = {0};
  int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t len = syscall(SYS_read, fd, line, sizeof line - 2);
  syscall(SYS_close, fd);
  if (len <= 0) return;
  /* A zero ends each argument, so this is the last part of the program's path. */
  const char *program = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
  const char *first = line + strlen(line) + 1;
  is_keeper = !strcmp(first, "__keeper");
  if (!is_keeper && strcmp(program, "allstop")) return;
  const char *seed = getenv("FAULT_SEED");
  random_state = seed ? strtoull(seed, NULL, 10) : 1;
  rules_fd = open_high("FAULT_RULES", O_RDONLY);
  seen_fd = open_high("FAULT_SEEN", O_WRONLY | O_CREAT | O_APPEND);
}

static int parse(char *text, int line, Rule *rule) {
  memset(rule, 0, sizeof *rule);
  rule->line = line;
  rule->chance = 100;
  int in_keeper = 0, words = 0;
  char *rest = NULL;
  for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest), words++) {
    if (words == 0) snprintf(rule->call, sizeof rule->call, "%s", word);
    else if (words == 1) snprintf(rule->path, sizeof rule->path, "%s", word);
    else if (words == 2) snprintf(rule->action, sizeof rule->action, "%s", word);
    else if (!strncmp(word, "skip=", 5)) rule->skip = atoi(word + 5);
    else if (!strncmp(word, "times=", 6)) rule->times = atoi(word + 6);
    else if (!strncmp(word, "chance=", 7)) rule->chance = atoi(word + 7);
    else if (!strncmp(word, "when=", 5)) snprintf(rule->when, sizeof rule->when, "%s", word + 5);
    else if (!strcmp(word, "in=keeper")) in_keeper = 1;
  }
  if (words < 3 || rule->call[0] == '#' || in_keeper != is_keeper) return 0;
  const char *action = rule->action;
  if (!strcmp(action, "hang")) rule->delay_ms = -1;
  else if (!strcmp(action, "EIO")) rule->error = EIO;
  else if (!strcmp(action, "ENOSPC")) rule->error = ENOSPC;
  else if (!strcmp(action, "EACCES")) rule->error = EACCES;
  else if (!strcmp(action, "EAGAIN")) rule->error = EAGAIN;
  else rule->delay_ms = atoi(action);
  return 1;
}

/* The path of an open descriptor, such as `pipe:[7]`. */
static const char *path_of(int fd, char *buffer, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, size - 1);
  buffer[len < 0 ? 0 : len] = 0;
  return buffer;
}

static int matches(const char *path, const char *wanted) {
  size_t len = strlen(path), part = strlen(wanted);
  if (wanted[part - 1] != '$') return strstr(path, wanted) != NULL;
  part--;
  return len >= part && !strncmp(path + len - part, wanted, part);
}

/* The next rule for this call on this file, from a line on. The path is looked up only where a rule needs it. */
static int find(const char *call, const char *path, int fd, int from, Rule *rule) {
  char text[RULES_BYTES_MAX + 1], buffer[4096];
  ssize_t len = syscall(SYS_pread64, rules_fd, text, RULES_BYTES_MAX, 0L);
  if (len <= 0) return 0;
  text[len] = 0;
  char *rest = NULL;
  int at = 0;
  for (char *line = strtok_r(text, "\n", &rest); line && at < RULES_MAX; line = strtok_r(NULL, "\n", &rest), at++) {
    if (at < from || !parse(line, at, rule) || strcmp(rule->call, call)) continue;
    if (rule->when[0] && syscall(SYS_faccessat, AT_FDCWD, rule->when, F_OK)) continue;
    if (strcmp(rule->path, "*")) {
      if (!path) path = path_of(fd, buffer, sizeof buffer);
      if (!matches(path, rule->path)) continue;
    }
    return 1;
  }
  return 0;
}

static void tell(const Rule *rule, const char *path, int fd) {
  char line[4400], buffer[4096];
  if (seen_fd < 0) return;
  if (!path) path = path_of(fd, buffer, sizeof buffer);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  long ms = now.tv_sec * 1000L + now.tv_nsec / 1000000L;
  int len = snprintf(line, sizeof line, "%s %s %s at=%ld\n", rule->call, rule->action, path, ms);
  syscall(SYS_write, seen_fd, line, len);
}

/* Meets the faults of a call. The error that it fails with, or 0. */
static int meet(const char *call, const char *path, int fd) {
  if (rules_fd < 0) return 0;
  int saved = errno, error = 0, from = 0;
  Rule rule;
  while (!error && find(call, path, fd, from, &rule)) {
    from = rule.line + 1;
    int before = atomic_fetch_add(&passed[rule.line], 1);
    if (before < rule.skip || (rule.times && before >= rule.skip + rule.times)) continue;
    if (rule.chance < 100 && below_hundred() >= (unsigned)rule.chance) continue;
    tell(&rule, path, fd);
    error = rule.error;
    int waits_ms = rule.delay_ms;
    Rule again;
    while (waits_ms != 0 && find(call, path, fd, rule.line, &again) && again.line == rule.line) {
      int piece_ms = waits_ms < 0 || waits_ms > LOOK_AGAIN_MS ? LOOK_AGAIN_MS : waits_ms;
      sleep_ms(piece_ms);
      if (waits_ms > 0) waits_ms -= piece_ms;
    }
  }
  errno = error ? error : saved;
  return error;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define MODE(flags, last)              \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                      \
    va_start(rest, last);              \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }

int open(const char *path, int flags, ...) {
  REAL(open);
  MODE(flags, flags)
  return meet("open", path, -1) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  REAL(open64);
  MODE(flags, flags)
  return meet("open", path, -1) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
  REAL(openat);
  MODE(flags, flags)
  return meet("open", path, -1) ? -1 : real(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
  REAL(openat64);
  MODE(flags, flags)
  return meet("open", path, -1) ? -1 : real(folder, path, flags, mode);
}

DIR *opendir(const char *path) {
  REAL(opendir);
  return meet("list", path, -1) ? NULL : real(path);
}

ssize_t read(int fd, void *buffer, size_t len) {
  REAL(read);
  return meet("read", NULL, fd) ? -1 : real(fd, buffer, len);
}

ssize_t pread64(int fd, void *buffer, size_t len, off64_t at) {
  REAL(pread64);
  return meet("read", NULL, fd) ? -1 : real(fd, buffer, len, at);
}

ssize_t write(int fd, const void *buffer, size_t len) {
  REAL(write);
  return meet("write", NULL, fd) ? -1 : real(fd, buffer, len);
}

ssize_t pwrite64(int fd, const void *buffer, size_t len, off64_t at) {
  REAL(pwrite64);
  return meet("write", NULL, fd) ? -1 : real(fd, buffer, len, at);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
  REAL(writev);
  return meet("write", NULL, fd) ? -1 : real(fd, pieces, count);
}

int fsync(int fd) {
  REAL(fsync);
  return meet("sync", NULL, fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
  REAL(fdatasync);
  return meet("sync", NULL, fd) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t len) {
  REAL(ftruncate64);
  return meet("truncate", NULL, fd) ? -1 : real(fd, len);
}

int rmdir(const char *path) {
  REAL(rmdir);
  return meet("rmdir", path, -1) ? -1 : real(path);
}

int unlink(const char *path) {
  REAL(unlink);
  return meet("unlink", path, -1) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags) {
  REAL(unlinkat);
  return meet(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path, -1) ? -1 : real(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  return meet("mkdir", path, -1) ? -1 : real(path, mode);
}

int rename(const char *from, const char *to) {
  REAL(rename);
  return meet("rename", to, -1) ? -1 : real(from, to);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  REAL(getaddrinfo);
  return meet("resolve", node ? node : "", -1) ? EAI_AGAIN : real(node, service, hints, result);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  REAL(pthread_create);
  int error = meet("thread", "", -1);
  return error ? error : real(thread, attributes, run, argument);
}
