/* atoll_clock(). */
#include "test.h"

int main(void)
{
    struct timespec moment = {0, 2000000}, before, after;
    uint64_t last = atoll_clock(), now, passed;
    int i, fine = 0;

    clock_gettime(CLOCK_MONOTONIC, &before);
    last = AClock();
    nanosleep(&moment, NULL);
    now = Atoll_Clock();
    clock_gettime(CLOCK_MONOTONIC, &after);
    passed = (uint64_t)((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec);
    CHECK(now - last >= 2000000 && now - last <= passed);
    for (i = 0; i < 1000; i++, last = now) {
        now = atoll_clock();
        CHECK(now >= last);
        fine += now % 1000 != 0;
    }
    CHECK(fine > 0);
    start();
    return stop();
}
