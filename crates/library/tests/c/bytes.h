/* Bytes by which a message is known. */
#ifndef BYTES_H
#define BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline unsigned char byte_of(size_t i, uint32_t seed)
{
    return (unsigned char)((i * 2654435761u + seed * 40503u) >> 11);
}

static inline void fill(unsigned char *data, size_t bytes, uint32_t seed)
{
    size_t i;

    for (i = 0; i < bytes; i++)
        data[i] = byte_of(i, seed);
}

static inline int is_filled(const unsigned char *data, size_t bytes, uint32_t seed)
{
    size_t i;

    for (i = 0; i < bytes; i++)
        if (data[i] != byte_of(i, seed))
            return 0;
    return 1;
}

#endif
