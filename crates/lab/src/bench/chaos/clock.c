/* Preloaded library that shifts the wall clock by CHAOS_CLOCK_OFFSET_SECS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    const char *text = getenv("CHAOS_CLOCK_OFFSET_SECS");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (answer == 0 && clock == CLOCK_REALTIME) now->tv_sec += offset();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *restrict, void *restrict);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "gettimeofday");
    int answer = real(now, zone);
    if (answer == 0 && now) now->tv_sec += offset();
    return answer;
}
