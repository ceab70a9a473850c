// Times a call of the progress API: the same program in C and in C++, which differ in the calls alone.
// Each prints a line "NAME NANOSECONDS", the median over rounds, for every call; the page is that of
// CPPRUN_PROGRESS_PAGE.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 1001
#define CALLS 2000  // a round is shorter than a time slice, whatever else the machine does

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

#define TIME(name, call)                                   \
  do {                                                     \
    double of_round[ROUNDS];                               \
    for (int round = 0; round < ROUNDS; ++round) {         \
      const double begin = now_ns();                       \
      for (int i = 0; i < CALLS; ++i) call;                \
      of_round[round] = (now_ns() - begin) / CALLS;        \
    }                                                      \
    qsort(of_round, ROUNDS, sizeof of_round[0], by_value); \
    printf("%s %.2f\n", name, of_round[ROUNDS / 2]);       \
  } while (0)
