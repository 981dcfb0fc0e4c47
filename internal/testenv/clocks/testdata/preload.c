// SPDX-License-Identifier: Apache-2.0

// The wall clock of a process, wrong by as many seconds as the file says that WRONG_CLOCK names. It
// calls nothing of the C library that allocates, since allocators look at the clock themselves.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *wrong;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("WRONG_CLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0) return;
	void *at = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED) wrong = at;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int r = syscall(SYS_clock_gettime, id, t);
	if (r == 0 && wrong && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *wrong;
	return r;
}

int gettimeofday(struct timeval *restrict v, void *restrict zone) {
	(void)zone;
	struct timespec t;
	int r = clock_gettime(CLOCK_REALTIME, &t);
	if (r == 0 && v) {
		v->tv_sec = t.tv_sec;
		v->tv_usec = t.tv_nsec / 1000;
	}
	return r;
}

time_t time(time_t *out) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (out) *out = t.tv_sec;
	return t.tv_sec;
}
