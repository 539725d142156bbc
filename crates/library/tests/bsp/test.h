/* What the test programs have in common. */
#include <bsp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            bsp_abort("%s:%d: %s", __FILE__, __LINE__, #condition);                                \
    } while (0)
