// The progress calls as a C program makes them; compiled as C11.
#ifndef PROGRESS_IN_C_H
#define PROGRESS_IN_C_H

#ifdef __cplusplus
extern "C" {
#endif

// Whether there is a page. Every call once, with values that the test knows.
int tell_progress_in_c(void);

#ifdef __cplusplus
}
#endif
#endif
