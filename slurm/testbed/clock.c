/* A wall clock per container, for processes that preload this library (/etc/ld.so.preload): ahead by the seconds in the file
 * /outage/clock/offset, which is read again every second. The monotonic clock is unchanged. libfaketime 0.9.10 cannot do
 * that: with FAKETIME_DONT_FAKE_MONOTONIC a sleep until a time of the monotonic clock, such as Python's time.sleep, fails
 * with EINVAL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic long offset_s, read_at_s = -1;

static long ahead(void) {
    struct timespec now;
    char text[32] = {0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    if (atomic_exchange(&read_at_s, now.tv_sec) != now.tv_sec) {
        int file = syscall(SYS_openat, AT_FDCWD, "/outage/clock/offset", O_RDONLY | O_CLOEXEC, 0);
        if (file >= 0) {
            if (syscall(SYS_read, file, text, sizeof text - 1) > 0) atomic_store(&offset_s, strtol(text, NULL, 10));
            syscall(SYS_close, file);
        }
    }
    return atomic_load(&offset_s);
}

static int real(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

static struct timespec back(const struct timespec *moment) {
    return (struct timespec){moment->tv_sec - ahead(), moment->tv_nsec};
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && real(clock)) now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (result == 0) now->tv_sec += ahead();
    return result;
}

time_t time(time_t *now) {
    struct timespec spec;
    clock_gettime(CLOCK_REALTIME, &spec);
    if (now) *now = spec.tv_sec;
    return spec.tv_sec;
}

/* Waits until a time of the wall clock. */

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    static int (*next)(clockid_t, int, const struct timespec *, struct timespec *);
    struct timespec moment = *until;
    if (!next) next = dlsym(RTLD_NEXT, "clock_nanosleep");
    if ((flags & TIMER_ABSTIME) && real(clock)) moment = back(until);
    return next(clock, flags, &moment, left);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*next)(sem_t *, const struct timespec *);
    struct timespec moment = back(until);
    if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
    return next(semaphore, &moment);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec moment = real(clock) ? back(until) : *until;
    if (!next) next = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return next(cond, mutex, clock, &moment);
}

/* The clock of a condition is unknown; times of the wall clock are larger than those since boot. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec moment = until->tv_sec > 1000000000 ? back(until) : *until;
    if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    return next(cond, mutex, &moment);
}
