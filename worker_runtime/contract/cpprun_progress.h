// Tells cpprun how far this worker is. C11 and C++, header-only, Linux:
//
//     #include <cpprun/cpprun_progress.h>
//     cpprun_progress_phase(CPPRUN_PHASE_TRAINING);
//     cpprun_progress_step(17);
//
// What a worker says lies in a page of memory that it shares with its agent, which looks at it to tell a hang
// from work, and quotes it when the worker has failed, however it ended. A call costs nanoseconds, never
// fails, and does nothing where the program was not started by cpprun.
//
// Calls may come from any thread; phase and section are the process's, meant for the thread that trains. Of a
// worker's processes the first that calls owns the page for as long as it lives; children that it forks are
// silent.
#ifndef CPPRUN_PROGRESS_H
#define CPPRUN_PROGRESS_H

#if defined(__STRICT_ANSI__) && !defined(_FEATURES_H) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef CLOCK_MONOTONIC
#error "cpprun_progress.h needs POSIX: include it before other headers, or define _GNU_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CPPRUN_PROGRESS_ENV "CPPRUN_PROGRESS_PAGE"  // names the page's file; unset or empty: there is none
#define CPPRUN_PROGRESS_PAGE_SIZE 4096
#define CPPRUN_PROGRESS_MAGIC UINT64_C(0x67706e7572707063)  // "cpprunpg" on a little-endian machine
#define CPPRUN_PROGRESS_VERSION UINT32_C(1)

enum cpprun_phase {
  CPPRUN_PHASE_STARTING = 0,
  CPPRUN_PHASE_TRAINING = 1,
  CPPRUN_PHASE_EVALUATING = 2,
  CPPRUN_PHASE_CHECKPOINTING = 3,
  CPPRUN_PHASE_COMPILING = 4,
  CPPRUN_PHASE_WAITING = 5,
  CPPRUN_PHASE_FINISHING = 6
};

// A text and the time since which it holds. Ends at the first NUL.
struct cpprun_section_entry {
  int64_t since;
  uint64_t text[8];
};
struct cpprun_message_entry {
  int64_t since;
  uint64_t text[63];
};

// The layout. Times are CLOCK_MONOTONIC in nanoseconds, 0 for never; they may be behind by a tick of the
// kernel's (4 ms). Numbers are written and read by relaxed atomics. Text number n, counted from 1, goes to
// entry n % 2, and then n to the counter: what the counter names is whole, though its writer be killed while
// it writes the next.
struct cpprun_progress_page {
  uint64_t magic;  // written last: the page has been opened by a worker
  uint32_t version;
  uint32_t pid;  // of the process that writes
  uint32_t phase;
  uint32_t python_stacks_signal;  // makes that process write its Python stacks to <page's file>.stacks; or 0
  uint64_t heartbeats;
  int64_t last_heartbeat;
  int64_t step;           // -1 before the first
  int64_t collective;     // sequence number; -1 before the first
  int64_t last_progress;  // of step, phase, section and collective
  int64_t phase_since;
  uint64_t section_count;
  uint64_t message_count;
  uint64_t reserved[5];
  struct cpprun_section_entry section[2];
  uint64_t reserved_too[30];
  struct cpprun_message_entry message[2];
};

// What of it belongs to the process. Weak: one for all of a program's files that include this header.
struct cpprun_progress_state {
  struct cpprun_progress_page* page;  // null: none
  pthread_once_t once;
  unsigned char opened;
  unsigned char writing;  // a thread holds the texts
};
__attribute__((weak)) struct cpprun_progress_state cpprun_progress_state_ = {NULL, PTHREAD_ONCE_INIT, 0, 0};

static inline int64_t cpprun_progress_now_(void) {
  struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // no system call, whatever the machine's clock source
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Two threads must not write one text. Gives up soon: a signal handler may have interrupted the other.
static inline int cpprun_progress_lock_(void) {
  for (int tries = 0; tries < 100; ++tries) {
    if (!__atomic_test_and_set(&cpprun_progress_state_.writing, __ATOMIC_ACQUIRE)) return 1;
    sched_yield();
  }
  return 0;
}

static inline void cpprun_progress_unlock_(void) {
  __atomic_clear(&cpprun_progress_state_.writing, __ATOMIC_RELEASE);
}

static inline void cpprun_progress_write_(int64_t* since_to, int64_t since, uint64_t* words, size_t size,
                                          const char* text) {
  size_t left = text ? strnlen(text, size - 1) : 0;
  __atomic_thread_fence(__ATOMIC_RELEASE);  // whoever sees a word of this text sees the counter before it
  __atomic_store_n(since_to, since, __ATOMIC_RELAXED);
  for (; left >= sizeof *words; left -= sizeof *words, text += sizeof *words) {
    uint64_t word;
    memcpy(&word, text, sizeof word);
    __atomic_store_n(words++, word, __ATOMIC_RELAXED);
  }
  uint64_t last = 0;
  if (left > 0) memcpy(&last, text, left);
  __atomic_store_n(words, last, __ATOMIC_RELAXED);
}

static inline void cpprun_progress_write_section_(struct cpprun_progress_page* page, int64_t since,
                                                  const char* name) {
  uint64_t number = page->section_count + 1;
  struct cpprun_section_entry* to = &page->section[number % 2];
  cpprun_progress_write_(&to->since, since, to->text, sizeof to->text, name);
  __atomic_store_n(&page->section_count, number, __ATOMIC_RELEASE);
}

static inline void cpprun_progress_write_message_(struct cpprun_progress_page* page, int64_t since,
                                                  const char* text) {
  uint64_t number = page->message_count + 1;
  struct cpprun_message_entry* to = &page->message[number % 2];
  cpprun_progress_write_(&to->since, since, to->text, sizeof to->text, text);
  __atomic_store_n(&page->message_count, number, __ATOMIC_RELEASE);
}

// Makes this process the page's writer. False while another one lives that is.
static inline int cpprun_progress_claim_(struct cpprun_progress_page* page) {
  const uint32_t own = (uint32_t)getpid();
  uint32_t writer = 0;
  while (!__atomic_compare_exchange_n(&page->pid, &writer, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (writer == own) return 1;  // by another library of the process, or the program that it ran before
    if (kill((pid_t)writer, 0) == 0 || errno != ESRCH) return 0;
  }
  const int64_t now = cpprun_progress_now_();
  __atomic_store_n(&page->python_stacks_signal, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&page->version, CPPRUN_PROGRESS_VERSION, __ATOMIC_RELAXED);
  __atomic_store_n(&page->phase, CPPRUN_PHASE_STARTING, __ATOMIC_RELAXED);
  __atomic_store_n(&page->phase_since, now, __ATOMIC_RELAXED);
  __atomic_store_n(&page->step, -1, __ATOMIC_RELAXED);
  __atomic_store_n(&page->collective, -1, __ATOMIC_RELAXED);
  cpprun_progress_write_section_(page, now, NULL);
  cpprun_progress_write_message_(page, now, NULL);
  __atomic_store_n(&page->magic, CPPRUN_PROGRESS_MAGIC, __ATOMIC_RELEASE);
  return 1;
}

static inline struct cpprun_progress_page* cpprun_progress_map_(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  struct stat about;
  void* page = MAP_FAILED;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= CPPRUN_PROGRESS_PAGE_SIZE) {
    page = mmap(NULL, CPPRUN_PROGRESS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (page == MAP_FAILED) return NULL;
  if (cpprun_progress_claim_((struct cpprun_progress_page*)page)) return (struct cpprun_progress_page*)page;
  munmap(page, CPPRUN_PROGRESS_PAGE_SIZE);
  return NULL;
}

static inline void cpprun_progress_silence_(void) {
  __atomic_store_n(&cpprun_progress_state_.page, NULL, __ATOMIC_RELAXED);
}

static inline void cpprun_progress_open_once_(void) {
  const int error = errno;
  const char* path = getenv(CPPRUN_PROGRESS_ENV);
  struct cpprun_progress_page* page = path && *path ? cpprun_progress_map_(path) : NULL;
  if (page && pthread_atfork(NULL, NULL, cpprun_progress_silence_) != 0) page = NULL;
  __atomic_store_n(&cpprun_progress_state_.page, page, __ATOMIC_RELAXED);
  __atomic_store_n(&cpprun_progress_state_.opened, 1, __ATOMIC_RELEASE);
  errno = error;
}

static inline struct cpprun_progress_page* cpprun_progress_page_(void) {
  if (!__atomic_load_n(&cpprun_progress_state_.opened, __ATOMIC_ACQUIRE)) {
    pthread_once(&cpprun_progress_state_.once, cpprun_progress_open_once_);
  }
  return __atomic_load_n(&cpprun_progress_state_.page, __ATOMIC_RELAXED);
}

static inline void cpprun_progress_moved_(struct cpprun_progress_page* page, int64_t now) {
  __atomic_store_n(&page->last_progress, now, __ATOMIC_RELAXED);
}

// Finds the page, which the first call of any other function does too. Whether there is one.
static inline int cpprun_progress_open(void) {
  return cpprun_progress_page_() != NULL;
}

// This process still runs; no progress by itself. May come from a thread of its own.
static inline void cpprun_progress_heartbeat(void) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page) return;
  __atomic_store_n(&page->last_heartbeat, cpprun_progress_now_(), __ATOMIC_RELAXED);
  __atomic_fetch_add(&page->heartbeats, 1, __ATOMIC_RELAXED);
}

// Step `step` of the training was done, or begun: what matters is that it changes. From 0.
static inline void cpprun_progress_step(int64_t step) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page) return;
  __atomic_store_n(&page->step, step, __ATOMIC_RELAXED);
  cpprun_progress_moved_(page, cpprun_progress_now_());
}

// The collective of this number, from 0, is about to begin. Ranks that count alike can be compared.
static inline void cpprun_progress_collective(int64_t sequence) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page) return;
  __atomic_store_n(&page->collective, sequence, __ATOMIC_RELAXED);
  cpprun_progress_moved_(page, cpprun_progress_now_());
}

// What the process is about now, CPPRUN_PHASE_...: limits depend on it. Returns the phase before.
static inline uint32_t cpprun_progress_phase(uint32_t phase) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page) return CPPRUN_PHASE_STARTING;
  const int64_t now = cpprun_progress_now_();
  __atomic_store_n(&page->phase_since, now, __ATOMIC_RELAXED);
  cpprun_progress_moved_(page, now);
  return __atomic_exchange_n(&page->phase, phase, __ATOMIC_RELAXED);
}

// Enters the section `name`, of which the first 63 bytes count, and leaves the one before. NULL or "": leaves
// it, and is in none. `outer`, unless it is NULL, gets the one before, for cpprun_progress_leave().
static inline void cpprun_progress_enter(const char* name, struct cpprun_section_entry* outer) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (outer) outer->since = 0, outer->text[0] = 0;
  if (!page || !cpprun_progress_lock_()) return;
  if (outer) *outer = page->section[page->section_count % 2];
  const int64_t now = cpprun_progress_now_();
  cpprun_progress_write_section_(page, now, name);
  cpprun_progress_moved_(page, now);
  cpprun_progress_unlock_();
}
static inline void cpprun_progress_section(const char* name) {
  cpprun_progress_enter(name, NULL);
}

// Back in the section around, since when that was entered.
static inline void cpprun_progress_leave(const struct cpprun_section_entry* outer) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page || !cpprun_progress_lock_()) return;
  cpprun_progress_write_section_(page, outer->since, (const char*)outer->text);
  cpprun_progress_moved_(page, cpprun_progress_now_());
  cpprun_progress_unlock_();
}

// A word for people, of which the first 503 bytes count; NULL or "": none. No progress by itself.
static inline void cpprun_progress_message(const char* text) {
  struct cpprun_progress_page* page = cpprun_progress_page_();
  if (!page || !cpprun_progress_lock_()) return;
  cpprun_progress_write_message_(page, cpprun_progress_now_(), text);
  cpprun_progress_unlock_();
}

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // CPPRUN_PROGRESS_H
